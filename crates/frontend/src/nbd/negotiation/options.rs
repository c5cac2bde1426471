//! What the text of an option says. Its lengths are the client's, and none is believed.
use crate::nbd::errors::OptionRefusal;
use crate::nbd::hello::word;
use crate::nbd::limits::STRING_MAX;
use crate::nbd::stream::Fields;
use crate::nbd::wire::{ALLOCATION, BASE, info};

/// About which export, of INFO and GO.
#[derive(Debug, PartialEq, Eq)]
pub struct Question {
    pub name: String,
    pub wanted: Wanted,
}

/// What a client asks for beside what it is always told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    pub name: bool,
    pub description: bool,
}

impl Question {
    pub fn parse(text: &[u8]) -> Result<Question, OptionRefusal> {
        let mut fields = Fields(text);
        let name = export_name(fields.sized().ok_or_else(OptionRefusal::cut)?)?;
        let mut wanted = Wanted::default();
        for _ in 0..fields.u16().ok_or_else(OptionRefusal::cut)? {
            match fields.u16().ok_or_else(OptionRefusal::cut)? {
                info::NAME => wanted.name = true,
                info::DESCRIPTION => wanted.description = true,
                // Export and block sizes come unasked; what is not known is ignored.
                _ => {}
            }
        }
        fields.ended()?;
        Ok(Question { name, wanted })
    }
}

/// About which metadata contexts of an export.
#[derive(Debug, PartialEq, Eq)]
pub struct ContextQuestion {
    pub name: String,
    is_empty: bool,
    names_allocation: bool,
    names_base: bool,
}

impl ContextQuestion {
    pub fn parse(text: &[u8]) -> Result<ContextQuestion, OptionRefusal> {
        let mut fields = Fields(text);
        let name = export_name(fields.sized().ok_or_else(OptionRefusal::cut)?)?;
        let count = fields.u32().ok_or_else(OptionRefusal::cut)?;
        let mut question = ContextQuestion {
            name,
            is_empty: count == 0,
            names_allocation: false,
            names_base: false,
        };
        // A false count ends with the text.
        for _ in 0..count {
            let query = fields.sized().ok_or_else(OptionRefusal::cut)?;
            question.names_allocation |= query == ALLOCATION.as_bytes();
            question.names_base |= query == BASE.as_bytes();
        }
        fields.ended()?;
        Ok(question)
    }

    /// Nothing asks for everything; so does a namespace for all that it has.
    pub fn lists_allocation(&self) -> bool {
        self.is_empty || self.names_allocation || self.names_base
    }

    /// Only by its name.
    pub fn selects_allocation(&self) -> bool {
        self.names_allocation
    }
}

pub fn export_name(bytes: &[u8]) -> Result<String, OptionRefusal> {
    word(bytes, STRING_MAX)
}
