//! The reference of the API, made of its own description.

use crate::{
    page::{Frame, PageResult, shown},
    visit::{Visit, escaped},
};
use askama::Template;
use control::web::ApiProblem;
use serde_json::Value;
use std::collections::BTreeMap;

#[derive(Template)]
#[template(path = "api.html")]
struct ApiPage<'a> {
    frame: &'a Frame,
    /// Operations by tag.
    tags: BTreeMap<String, Vec<Operation>>,
}

#[derive(Template)]
#[template(path = "api_schema.html")]
struct SchemaPage<'a> {
    frame: &'a Frame,
    description: String,
    fields: Vec<SchemaField>,
    /// Words that it may be, of an enumeration.
    words: Vec<String>,
    /// Schemas that it is one of.
    choices: Vec<Reference>,
}

/// An operation of the API.
struct Operation {
    method: String,
    path: String,
    summary: String,
    parameters: Vec<Parameter>,
    body: Reference,
    answer: Reference,
}

struct Parameter {
    name: String,
    place: String,
    is_required: bool,
    description: String,
}

/// A field of a schema.
struct SchemaField {
    name: String,
    kind: Reference,
    is_required: bool,
    description: String,
}

/// A type in words, with the schema that has its fields, if there is one.
#[derive(Default)]
struct Reference {
    words: String,
    schema: Option<String>,
}

const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];
const SCHEMAS: &str = "#/components/schemas/";

async fn description_of(visit: &Visit) -> Result<Value, ApiProblem> {
    visit.get("/v1/openapi.json").await
}

pub(crate) async fn show(visit: Visit) -> PageResult {
    let frame = Frame::new(&visit, "API reference", "").await?;
    let description = description_of(&visit).await?;
    shown(&ApiPage { frame: &frame, tags: operations(&description) }, &frame)
}

pub(crate) async fn show_schema(
    visit: Visit,
    axum::extract::Path(name): axum::extract::Path<String>,
) -> PageResult {
    let description = description_of(&visit).await?;
    let schema = &description["components"]["schemas"][&name];
    if schema.is_null() {
        return Err(ApiProblem::not_found(format!("the API has no schema {name}")).into());
    }
    let frame = Frame::new(&visit, format!("Schema {name}"), "").await?;
    let words = schema["enum"].as_array().into_iter().flatten().map(text_of).collect();
    let choices = ["oneOf", "anyOf", "allOf"].into_iter().flat_map(|key| schema[key].as_array());
    let choices = choices.flatten().map(reference).collect();
    let page = SchemaPage {
        frame: &frame,
        description: text_of(&schema["description"]),
        fields: fields_of(schema),
        words,
        choices,
    };
    shown(&page, &frame)
}

/// Operations by their first tags, in the order of their paths.
fn operations(description: &Value) -> BTreeMap<String, Vec<Operation>> {
    let mut tags: BTreeMap<String, Vec<Operation>> = BTreeMap::new();
    for (path, item) in description["paths"].as_object().into_iter().flatten() {
        for method in METHODS {
            let operation = &item[method];
            if operation.is_null() {
                continue;
            }
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            // The key is described once, at the top.
            let parameters = parameters.filter(|parameter| parameter["name"] != "Idempotency-Key");
            let summary = match text_of(&operation["summary"]) {
                summary if summary.is_empty() => text_of(&operation["description"]),
                summary => summary,
            };
            tags.entry(text_of(&operation["tags"][0])).or_default().push(Operation {
                method: method.to_uppercase(),
                path: path.clone(),
                summary,
                parameters: parameters.map(parameter).collect(),
                body: content(&operation["requestBody"]),
                answer: answer_of(&operation["responses"]),
            });
        }
    }
    tags
}

fn parameter(value: &Value) -> Parameter {
    Parameter {
        name: text_of(&value["name"]),
        place: text_of(&value["in"]),
        is_required: value["required"] == true,
        description: text_of(&value["description"]),
    }
}

/// The answer with the lowest status, which is the one of a success.
fn answer_of(responses: &Value) -> Reference {
    let successes = responses.as_object().into_iter().flatten().filter(|(status, _)| status.starts_with('2'));
    successes.map(|(_, response)| content(response)).next().unwrap_or_default()
}

fn content(value: &Value) -> Reference {
    let first = value["content"].as_object().into_iter().flatten().next();
    first.map_or_else(Reference::default, |(_, content)| reference(&content["schema"]))
}

fn fields_of(schema: &Value) -> Vec<SchemaField> {
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let fields = schema["properties"].as_object().into_iter().flatten();
    fields
        .map(|(name, field)| SchemaField {
            name: name.clone(),
            kind: reference(field),
            is_required: required.contains(&name.as_str()),
            description: text_of(&field["description"]),
        })
        .collect()
}

/// A type in words: `array of VolumeEntry`, `integer`, `string or null`.
fn reference(schema: &Value) -> Reference {
    if let Some(name) = schema["$ref"].as_str().and_then(|name| name.strip_prefix(SCHEMAS)) {
        return Reference { words: name.to_owned(), schema: Some(name.to_owned()) };
    }
    let choices = ["oneOf", "anyOf", "allOf"].into_iter().find_map(|key| schema[key].as_array());
    if let Some(choices) = choices {
        let mut known = choices.iter().map(reference);
        let meant = known.find(|choice| choice.words != "null");
        return meant.unwrap_or_default();
    }
    if schema["items"].is_object() {
        let Reference { words, schema } = reference(&schema["items"]);
        return Reference { words: format!("array of {words}"), schema };
    }
    let words = match &schema["type"] {
        Value::Array(kinds) => kinds.iter().map(text_of).collect::<Vec<_>>().join(" or "),
        kind => text_of(kind),
    };
    match schema["const"].as_str().or_else(|| schema["enum"][0].as_str()) {
        Some(word) => Reference { words: format!("\"{word}\""), schema: None },
        None => Reference { words, schema: None },
    }
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_of_the_description_is_in_the_reference() {
        let description: Value = serde_json::from_str(&control::web::openapi_json()).unwrap();
        let paths = description["paths"].as_object().unwrap();
        let wanted: usize = paths
            .values()
            .map(|item| METHODS.into_iter().filter(|method| !item[method].is_null()).count())
            .sum();
        let tags = operations(&description);
        assert_eq!(tags.values().map(Vec::len).sum::<usize>(), wanted);
        let volumes = &tags["volumes"];
        let create =
            volumes.iter().find(|one| one.method == "POST" && one.path.ends_with("/volumes")).unwrap();
        assert_eq!(create.body.schema.as_deref(), Some("NewVolumeBody"));
        assert_eq!(create.answer.schema.as_deref(), Some("VolumeEntry"));
        assert!(create.parameters.iter().all(|parameter| parameter.name != "Idempotency-Key"));
        assert!(tags.values().flatten().all(|one| !one.summary.is_empty()), "each says what it does");
    }

    #[test]
    fn types_are_words_with_their_schema() {
        let words = |json: &str| reference(&serde_json::from_str(json).unwrap()).words;
        assert_eq!(
            words("{\"type\": \"array\", \"items\": {\"$ref\": \"#/components/schemas/JobRow\"}}"),
            "array of JobRow"
        );
        assert_eq!(words("{\"type\": [\"string\", \"null\"]}"), "string or null");
        assert_eq!(
            words("{\"oneOf\": [{\"type\": \"null\"}, {\"$ref\": \"#/components/schemas/JobRow\"}]}"),
            "JobRow"
        );
    }
}
