//! What a client has said of itself so far, if anything: each thing once, in its order.
use crate::nbd::errors::OptionRefusal;
use crate::nbd::hello::{Hello, Introduction, Nonce, Proof};

#[derive(Debug)]
pub struct Stranger {
    challenge: Nonce,
    said: Option<Introduction>,
}

impl Stranger {
    pub fn new(challenge: Nonce) -> Stranger {
        Stranger { challenge, said: None }
    }

    /// Its name; answered with the challenge.
    pub fn hello(&mut self, text: &[u8]) -> Result<Nonce, OptionRefusal> {
        if self.said.is_some() {
            return Err(OptionRefusal::invalid("this connection has said hello already"));
        }
        let hello = Hello::parse(text)?;
        let challenge = self.challenge;
        self.said = Some(Introduction { hello, challenge, proof: None });
        Ok(challenge)
    }

    pub fn prove(&mut self, text: &[u8]) -> Result<(), OptionRefusal> {
        let Some(said) = &mut self.said else {
            return Err(OptionRefusal::invalid("who proves something has to say hello before"));
        };
        if said.proof.is_some() {
            return Err(OptionRefusal::invalid("this connection has proved itself already"));
        }
        said.proof = Some(Proof::parse(text)?);
        Ok(())
    }

    /// Who asks for an export. A proof counts for the one that it was made for.
    pub fn asks_for(&self, export: &str) -> Result<Option<Box<Introduction>>, OptionRefusal> {
        let proved = self.said.as_ref().and_then(|said| said.proof.as_ref());
        match proved.filter(|proof| proof.export != export) {
            Some(proof) => {
                let message = format!(
                    "this connection proved itself for the export {:?}; ask for that, or connect anew",
                    proof.export
                );
                Err(OptionRefusal::invalid(message))
            }
            None => Ok(self.said.clone().map(Box::new)),
        }
    }

    pub fn has_said_hello(&self) -> bool {
        self.said.is_some()
    }
}
