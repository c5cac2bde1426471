//! Messages with a value of its own in every field, as bytes and as lines.
use std::collections::HashMap;

use anyhow::{Context, Result, bail, ensure};
use prost_reflect::prost::Message;
use prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, ReflectMessage, Value,
};
use serde::{Deserialize, Serialize};

use crate::lines;

/// Messages of the interface do not contain themselves; deeper than this means that one does.
const DEPTH_MAX: usize = 10;

#[derive(Clone, Serialize, Deserialize)]
pub struct Sample {
    pub message: String,
    pub variant: String,
    /// In hexadecimal digits.
    bytes: String,
    /// What its writer, or its reader, takes the bytes for.
    pub lines: Vec<String>,
}

impl Sample {
    fn new(message: &DynamicMessage, variant: &str) -> Sample {
        let bytes = message.encode_to_vec();
        Sample {
            message: message.descriptor().full_name().to_owned(),
            variant: variant.to_owned(),
            bytes: bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
            lines: lines::of(message),
        }
    }

    pub fn bytes(&self) -> Result<Vec<u8>> {
        let digits = self.bytes.as_bytes().chunks(2).map(|pair| {
            let pair = str::from_utf8(pair)?;
            Ok(u8::from_str_radix(pair, 16)?)
        });
        digits.collect()
    }

    pub fn decode(&self, pool: &DescriptorPool) -> Result<DynamicMessage> {
        let message =
            pool.get_message_by_name(&self.message).context("there is no such message")?;
        Ok(DynamicMessage::decode(message, self.bytes()?.as_slice())?)
    }

    /// What somebody who has these definitions understands otherwise.
    pub fn misread_by(&self, pool: &DescriptorPool) -> Option<String> {
        match self.decode(pool) {
            Ok(message) => self.difference(&lines::of(&message)),
            Err(error) => Some(format!("{}: {error:#}", self.variant)),
        }
    }

    /// The first line that differs.
    pub fn difference(&self, read: &[String]) -> Option<String> {
        let lines = self.lines.len().max(read.len());
        let at = (0..lines).find(|at| self.lines.get(*at) != read.get(*at))?;
        let told = |lines: &[String]| lines.get(at).map_or("nothing", String::as_str).to_owned();
        Some(format!("{}: written: {}; read: {}", self.variant, told(&self.lines), told(read)))
    }
}

pub fn of(messages: &[MessageDescriptor]) -> Result<Vec<Sample>> {
    let mut samples = Vec::new();
    for message in messages {
        samples.push(Sample::new(&DynamicMessage::new(message.clone()), "empty"));
        for turn in 0..turns(message, 0)? {
            for hollow in [false, true] {
                let filled = Filler { turn, hollow, given: 0 }.message(message)?;
                let variant = format!("{} {turn}", if hollow { "hollow" } else { "full" });
                samples.push(Sample::new(&filled, &variant));
            }
        }
    }
    Ok(samples)
}

/// How many it takes until every arm of every oneof and every value of every enum had its own.
fn turns(message: &MessageDescriptor, depth: usize) -> Result<usize> {
    ensure!(depth <= DEPTH_MAX, "{}: deeper than {DEPTH_MAX} messages", message.full_name());
    let mut most = message.oneofs().map(|oneof| oneof.fields().len()).max().unwrap_or(1);
    for field in message.fields() {
        most = most.max(match field.kind() {
            Kind::Message(inner) => turns(&inner, depth + 1)?,
            Kind::Enum(item) => item.values().len(),
            _ => 1,
        });
    }
    Ok(most)
}

/// Oneofs and enums take their turns; what is hollow has all its messages, with nothing in them.
struct Filler {
    turn: usize,
    hollow: bool,
    given: i32,
}

impl Filler {
    fn message(&mut self, descriptor: &MessageDescriptor) -> Result<DynamicMessage> {
        let mut message = DynamicMessage::new(descriptor.clone());
        for field in descriptor.fields() {
            if let Some(oneof) = field.containing_oneof() {
                let arms: Vec<_> = oneof.fields().collect();
                if arms[self.turn % arms.len()] != field {
                    continue;
                }
            }
            let value = self.field(&field)?;
            message.set_field(&field, value);
        }
        Ok(message)
    }

    fn field(&mut self, field: &FieldDescriptor) -> Result<Value> {
        if !field.is_list() && !field.is_map() {
            return self.one(field);
        }
        if let (true, Kind::Message(entry)) = (field.is_map(), field.kind()) {
            let mut entries = HashMap::new();
            for _ in 0..2 {
                let key = self.one(&entry.map_entry_key_field())?.into_map_key();
                let value = self.one(&entry.map_entry_value_field())?;
                entries.insert(key.context("what is no key is refused by the compiler")?, value);
            }
            return Ok(Value::Map(entries));
        }
        Ok(Value::List(vec![self.one(field)?, self.one(field)?]))
    }

    fn one(&mut self, field: &FieldDescriptor) -> Result<Value> {
        if let Kind::Message(message) = field.kind() {
            return Ok(Value::Message(self.message(&message)?));
        }
        self.given += 1;
        if self.hollow {
            return Ok(Value::default_value(&field.kind()));
        }
        let number = if self.turn % 2 == 1 { -self.given } else { self.given };
        Ok(match field.kind() {
            Kind::Bool => Value::Bool(true),
            Kind::Int32 => Value::I32(number * 0x1_0001),
            Kind::Int64 => Value::I64(i64::from(number) * 0x1_0000_0001),
            Kind::String => Value::String(format!("{}-{}-ü", field.full_name(), self.given)),
            Kind::Enum(item) => {
                let values: Vec<_> = item.values().collect();
                Value::EnumNumber(values[self.turn % values.len()].number())
            }
            kind => bail!("{}: this check does not know the kind {kind:?} yet", field.full_name()),
        })
    }
}
