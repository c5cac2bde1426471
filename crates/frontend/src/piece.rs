//! What a machine wants to have sent: small bytes of its own, or data as the volume gave it, which
//! nobody copies.
use block::Data;

#[derive(Clone, Debug)]
pub enum Piece {
    Bytes(Vec<u8>),
    Data(Data),
}

impl Piece {
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Piece::Bytes(bytes) => bytes,
            Piece::Data(data) => data,
        }
    }
}
