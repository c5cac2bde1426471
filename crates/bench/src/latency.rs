//! How long operations took, one by one.
use std::time::Duration;

#[derive(Clone, Debug, Default)]
pub struct Latencies {
    nanos: Vec<u64>,
}

impl Latencies {
    pub fn note(&mut self, took: Duration) {
        self.nanos.push(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }

    pub fn extend(&mut self, other: Latencies) {
        self.nanos.extend(other.nanos);
    }

    pub fn count(&self) -> usize {
        self.nanos.len()
    }

    /// In milliseconds: what this share of all operations did not exceed. 0 if there were none.
    pub fn share(&mut self, share: f64) -> f64 {
        let Some(last) = self.nanos.len().checked_sub(1) else { return 0.0 };
        // Rounded to the nearest: with few operations the neighbours are far apart anyway.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
        let at = ((last as f64 * share).round() as usize).min(last);
        *self.nanos.select_nth_unstable(at).1 as f64 / 1e6
    }

    pub fn max(&self) -> f64 {
        self.nanos.iter().max().map_or(0.0, |nanos| *nanos as f64 / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_found_whatever_the_order() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.share(0.5), 0.0);
        for millis in [5, 1, 4, 2, 3] {
            latencies.note(Duration::from_millis(millis));
        }
        assert_eq!((latencies.share(0.5), latencies.share(0.99), latencies.max()), (3.0, 5.0, 5.0));
    }
}
