//! Whatever the public module marks as secret, and what else we hide, is not in the text of a message.
use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use prost_reflect::{DescriptorPool, DynamicMessage, MapKey, ReflectMessage, Value};

use crate::samples::Sample;
use crate::{Outcome, generated};

/// Publish contexts have the passwords of targets, mount options may have others.
const ALSO_HIDDEN: [&str; 4] = [
    "csi.v1.ControllerPublishVolumeResponse.publish_context",
    "csi.v1.NodeStageVolumeRequest.publish_context",
    "csi.v1.NodePublishVolumeRequest.publish_context",
    "csi.v1.VolumeCapability.MountVolume.mount_flags",
];

/// It is seen, and a search that does not find it finds nothing.
const SEEN: &str = "csi.v1.CreateVolumeRequest.name";

pub fn check(pool: &DescriptorPool, public: &[String], samples: &[Sample]) -> Result<Vec<Outcome>> {
    let mut shown = shown_by_field(pool, samples)?;
    ensure!(!public.is_empty(), "the public module marks no field as secret");
    ensure!(shown.get(SEEN).is_some_and(|seen| !seen.is_empty()), "{SEEN} is not seen");
    let hidden = public.iter().map(String::as_str).chain(ALSO_HIDDEN);
    let outcomes = hidden.map(|field| {
        let unknown = || vec!["no sample has a value in it".to_owned()];
        let wrong = shown.remove(field).unwrap_or_else(unknown);
        (format!("{field} is hidden"), wrong)
    });
    Ok(outcomes.collect())
}

/// For each field that has values in samples, those that are in the text of a message around it.
type Shown = BTreeMap<String, Vec<String>>;

fn shown_by_field(pool: &DescriptorPool, samples: &[Sample]) -> Result<Shown> {
    let mut shown = Shown::new();
    for sample in samples {
        let read = generated::read(&sample.message).context("a type is missing")?;
        let text = read(&sample.bytes()?)?.text;
        let mut values = Vec::new();
        texts(&sample.decode(pool)?, &mut values);
        for (field, value) in values {
            let seen = shown.entry(field).or_default();
            if text.contains(&value) {
                seen.push(format!("{}, {}: {value}", sample.message, sample.variant));
            }
        }
    }
    Ok(shown)
}

/// All texts in a message with the fields that have them, keys of maps too.
fn texts(message: &DynamicMessage, found: &mut Vec<(String, String)>) {
    for field in message.descriptor().fields().filter(|field| message.has_field(field)) {
        texts_of_field(field.full_name(), &message.get_field(&field), found);
    }
}

fn texts_of_field(field: &str, value: &Value, found: &mut Vec<(String, String)>) {
    match value {
        // Every text has the empty one in it.
        Value::String(text) if !text.is_empty() => found.push((field.to_owned(), text.clone())),
        Value::Message(inner) => texts(inner, found),
        Value::List(values) => {
            values.iter().for_each(|value| texts_of_field(field, value, found));
        }
        Value::Map(entries) => {
            for (key, value) in entries {
                if let MapKey::String(key) = key {
                    texts_of_field(field, &Value::String(key.clone()), found);
                }
                texts_of_field(field, value, found);
            }
        }
        _ => {}
    }
}
