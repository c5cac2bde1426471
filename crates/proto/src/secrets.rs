//! Messages that hold a secret, as text without it: what is logged is read by others.
use std::fmt;

use crate::v1::Chap;

impl fmt::Debug for Chap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chap")
            .field("user", &self.user)
            .field("mutual_user", &self.mutual_user)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use crate::v1::{Chap, Volume};

    #[test]
    fn a_volume_as_text_shows_no_secret() {
        let chap = Chap {
            user: "somebody".into(),
            secret: "open sesame".into(),
            mutual_user: "target".into(),
            mutual_secret: "close sesame".into(),
        };
        let text = format!("{:?}", Volume { chap: Some(chap), ..Volume::default() });
        assert!(text.contains("somebody") && !text.contains("sesame"), "{text}");
    }
}
