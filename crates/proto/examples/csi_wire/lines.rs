//! Everything that is in a message, one line each, by names and in the order of numbers.
use prost_reflect::{DynamicMessage, EnumDescriptor, Kind, MapKey, ReflectMessage, Value};

pub fn of(message: &DynamicMessage) -> Vec<String> {
    let mut lines = Vec::new();
    walk("", message, &mut lines);
    lines
}

fn walk(path: &str, message: &DynamicMessage, lines: &mut Vec<String>) {
    let descriptor = message.descriptor();
    let mut fields: Vec<_> = descriptor.fields().collect();
    fields.sort_by_key(prost_reflect::FieldDescriptor::number);
    for field in fields.iter().filter(|field| message.has_field(field)) {
        let path = format!("{path}{}", field.name());
        match (message.get_field(field).as_ref(), field.kind()) {
            (Value::Map(entries), Kind::Message(entry)) => {
                let kind = entry.map_entry_value_field().kind();
                let mut entries: Vec<_> = entries.iter().map(|(k, v)| (key(k), v)).collect();
                entries.sort_by(|a, b| a.0.cmp(&b.0));
                for (key, value) in entries {
                    one(&format!("{path}[{key}]"), &kind, value, lines);
                }
            }
            (Value::List(values), kind) => {
                for (at, value) in values.iter().enumerate() {
                    one(&format!("{path}[{at}]"), &kind, value, lines);
                }
            }
            (value, kind) => one(&path, &kind, value, lines),
        }
    }
    if message.unknown_fields().next().is_some() {
        lines.push(format!("{path}? = not known"));
    }
}

fn one(path: &str, kind: &Kind, value: &Value, lines: &mut Vec<String>) {
    match (value, kind) {
        (Value::Message(message), _) => {
            lines.push(format!("{path} is there"));
            walk(&format!("{path}."), message, lines);
        }
        (Value::EnumNumber(number), Kind::Enum(item)) => {
            lines.push(format!("{path} = {}", enum_name(item, *number)));
        }
        (Value::String(text), _) => lines.push(format!("{path} = {text}")),
        (Value::Bool(is), _) => lines.push(format!("{path} = {is}")),
        (Value::I32(number), _) => lines.push(format!("{path} = {number}")),
        (Value::I64(number), _) => lines.push(format!("{path} = {number}")),
        (other, _) => lines.push(format!("{path} is of a kind that is not compared: {other:?}")),
    }
}

fn key(key: &MapKey) -> String {
    match key {
        MapKey::String(text) => text.clone(),
        other => format!("a key that is not compared: {other:?}"),
    }
}

fn enum_name(item: &EnumDescriptor, number: i32) -> String {
    match item.get_value(number) {
        Some(value) => value.name().to_owned(),
        None => format!("{number}, which is not known"),
    }
}
