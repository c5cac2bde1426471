//! The OpenAPI document of the API, made of the table of its calls.
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::error::ApiError;
use super::routes::{Route, Shape, Verb, table};

/// What is served at `/openapi.json`.
pub fn document() -> Value {
    let mut settings = SchemaSettings::openapi3();
    settings.definitions_path = "/components/schemas".into();
    let mut generator = settings.into_generator();
    let mut paths = Map::new();
    for route in table() {
        let call = call(&route, &mut generator);
        let at = paths.entry(route.path).or_insert_with(|| json!({}));
        let verb = match route.verb {
            Verb::Get => "get",
            Verb::Post => "post",
        };
        at[verb] = call;
    }
    generator.subschema_for::<ApiError>();
    json!({
        "openapi": "3.0.3",
        "info": {
            "title": "Pollux",
            "description": "The API of a storage site. Wherever an id is asked for, a name and a uid will do.",
            "version": "v1",
        },
        "security": [{ "bearer": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": { "bearer": { "type": "http", "scheme": "bearer" } },
            "schemas": generator.take_definitions(true),
        },
    })
}

fn call(route: &Route, generator: &mut SchemaGenerator) -> Value {
    let mut parameters = Vec::new();
    if route.path.contains("{id}") {
        parameters.push(json!({
            "name": "id", "in": "path", "required": true, "schema": { "type": "string" },
        }));
    }
    let gives = (route.gives)(generator);
    let error = json!({ "$ref": "#/components/schemas/ApiError" });
    let mut call = json!({
        "summary": route.summary,
        "description": format!("Needs the role {:?}.", route.role),
        "operationId": operation(route),
        "responses": {
            "200": { "description": "Done", "content": content(json!(gives)) },
            "default": { "description": "Not done; the code says why", "content": content(error) },
        },
    });
    match (route.verb, route.takes) {
        (Verb::Get, Some(takes)) => parameters.extend(of_query(takes)),
        (Verb::Post, Some(takes)) => {
            let schema = takes(generator);
            call["requestBody"] = json!({ "required": true, "content": content(json!(schema)) });
        }
        (_, None) => {}
    }
    call["parameters"] = Value::Array(parameters);
    call
}

fn content(schema: Value) -> Value {
    json!({ "application/json": { "schema": schema } })
}

/// `POST /v1/volumes/{id}/resize` is `volumesResize`.
fn operation(route: &Route) -> String {
    let mut name = String::from(match route.verb {
        Verb::Get => "get",
        Verb::Post => "post",
    });
    for part in route.path.split(['/', '-']).filter(|part| !part.is_empty() && *part != "v1") {
        let part = part.trim_matches(['{', '}']);
        let mut letters = part.chars();
        name.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        name.extend(letters);
    }
    name
}

/// Each field of a query is a parameter.
fn of_query(takes: Shape) -> Vec<Value> {
    let mut generator =
        SchemaSettings::openapi3().with(|it| it.inline_subschemas = true).into_generator();
    let schema = Value::from(takes(&mut generator));
    let fields = schema["properties"].as_object().cloned().unwrap_or_default();
    let parameter = |(name, schema): (String, Value)| json!({ "name": name, "in": "query", "required": false, "schema": schema });
    fields.into_iter().map(parameter).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Whoever generates a client of it must find everything that it refers to.
    #[test]
    fn the_document_is_whole() {
        let document = document();
        let text = document.to_string();
        let schemas = document["components"]["schemas"].as_object().expect("schemas");
        let refers = text.split("\"$ref\":\"").skip(1).filter_map(|rest| rest.split('"').next());
        let mut found = 0;
        for reference in refers {
            let name = reference.strip_prefix("#/components/schemas/").expect(reference);
            assert!(schemas.contains_key(name), "{name}");
            found += 1;
        }
        assert!(found > table().len(), "{found}");
        let mut operations = BTreeSet::new();
        for route in table() {
            assert!(operations.insert(operation(&route)), "{} is there twice", route.path);
            let verb = if route.verb == Verb::Get { "get" } else { "post" };
            assert!(document["paths"][route.path][verb]["summary"].is_string(), "{}", route.path);
        }
        let list = &document["paths"]["/v1/snapshots"]["get"]["parameters"];
        assert!(list.as_array().is_some_and(|all| all.len() == 3), "{list}");
        assert!(!text.contains("#/$defs"), "definitions are where the document says");
    }
}
