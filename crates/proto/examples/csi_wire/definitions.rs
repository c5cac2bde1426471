//! What is defined, one entry for each name, in the words that the program of the public module has too.
use std::collections::{BTreeMap, BTreeSet};

use prost_reflect::{Cardinality, DescriptorPool, FieldDescriptor, Kind, MethodDescriptor};

use crate::{Outcome, PACKAGE, messages};

pub type Definitions = BTreeMap<String, String>;

pub fn of(pool: &DescriptorPool) -> Definitions {
    let mut found = Definitions::new();
    for message in messages(pool) {
        found.insert(message.full_name().into(), "message".into());
        for field in message.fields() {
            found.insert(field.full_name().into(), field_words(&field));
        }
    }
    for item in pool.all_enums().filter(|item| item.package_name() == PACKAGE) {
        found.insert(item.full_name().into(), "enum".into());
        for value in item.values() {
            let name = format!("{}.{}", item.full_name(), value.name());
            found.insert(name, format!("value {}", value.number()));
        }
    }
    for service in pool.services().filter(|service| service.package_name() == PACKAGE) {
        found.insert(service.full_name().into(), "service".into());
        for method in service.methods() {
            found.insert(method.full_name().into(), method_words(&method));
        }
    }
    found
}

fn field_words(field: &FieldDescriptor) -> String {
    let explicitly = match field.field_descriptor_proto().proto3_optional() {
        true => "explicitly ",
        false => "",
    };
    let label = match field.cardinality() {
        Cardinality::Optional => "optional",
        Cardinality::Required => "required",
        Cardinality::Repeated => "repeated",
    };
    let oneof = field.containing_oneof();
    let oneof = oneof.as_ref().map_or("none", |oneof| oneof.name());
    format!(
        "field {}, {explicitly}{label} {}, JSON {}, oneof {oneof}",
        field.number(),
        type_name(field),
        field.json_name()
    )
}

fn type_name(field: &FieldDescriptor) -> String {
    match field.kind() {
        Kind::Message(entry) if field.is_map() => {
            let (key, value) = (entry.map_entry_key_field(), entry.map_entry_value_field());
            format!("map<{}, {}>", type_name(&key), type_name(&value))
        }
        Kind::Message(message) => message.full_name().to_owned(),
        Kind::Enum(item) => item.full_name().to_owned(),
        // This library shows scalars by their names in definitions.
        scalar => format!("{scalar:?}"),
    }
}

fn method_words(method: &MethodDescriptor) -> String {
    let stream = |is: bool| if is { "stream " } else { "" };
    format!(
        "method {}{} -> {}{}",
        stream(method.is_client_streaming()),
        method.input().full_name(),
        stream(method.is_server_streaming()),
        method.output().full_name()
    )
}

/// One outcome for each name that anybody has.
pub fn compare(public: &Definitions, ours: &Definitions) -> Vec<Outcome> {
    let names: BTreeSet<&String> = public.keys().chain(ours.keys()).collect();
    let outcomes = names.into_iter().map(|name| {
        let wrong = match (public.get(name), ours.get(name)) {
            (Some(public), Some(ours)) if public == ours => Vec::new(),
            (Some(public), Some(ours)) => vec![format!("public: {public}; ours: {ours}")],
            (Some(public), None) => vec![format!("ours lack it: {public}")],
            (None, _) => vec!["only ours have it".to_owned()],
        };
        (name.clone(), wrong)
    });
    outcomes.collect()
}
