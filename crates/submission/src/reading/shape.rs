//! What a JSON value must be, as the OpenAPI schema of a type says it.
//!
//! The schema is read as JSON, by the keywords that ours use. Invariant: a keyword that is not
//! known here lets every value pass; the type itself decides then.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock};

use parking_lot::RwLock;
use punctual_client::RequestBody;
use punctual_client::form::TaskRefForm;
use serde_json::Value;
use utoipa::ToSchema;

/// The maximum number of entries of a list or a map without a bound of its own.
const ENTRIES_MAX: usize = 10_000;
/// Requests are never nested this deep; a schema may be.
const DEPTH_MAX: usize = 16;

/// What a value must be. It is written as the end of a sentence that begins with "must be".
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    pub(super) kind: Kind,
    pub(super) is_nullable: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    /// Anything.
    Any,
    /// A string.
    Text,
    /// An instant.
    Time,
    /// The id of a task.
    TaskId,
    /// One of these strings.
    Word(Vec<String>),
    /// A whole number.
    Whole { least: Option<i128>, most: Option<i128> },
    /// A number.
    Number { least: Option<f64>, most: Option<f64> },
    /// `true` or `false`.
    Flag,
    /// A list of up to `most` items.
    List { item: Box<Shape>, most: usize },
    /// An object with free names.
    Map { value: Box<Shape>, most: usize },
    /// An object with these members.
    Object(Object),
    /// What one of these is.
    Either(Vec<Shape>),
}

/// The members of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Object {
    pub(super) members: Vec<Property>,
    /// Names of members that are accepted and ignored.
    pub(super) ignored: &'static [&'static str],
    /// Whether members of other names are accepted.
    pub(super) is_open: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Property {
    pub(super) name: String,
    pub(super) shape: Shape,
    pub(super) is_required: bool,
}

/// The shapes that were needed so far, by the names that their types have in the document.
static KNOWN: LazyLock<RwLock<HashMap<String, Arc<Shape>>>> = LazyLock::new(RwLock::default);

impl Shape {
    /// What the body of a request must be.
    pub fn of<T: RequestBody>() -> Arc<Self> {
        let name = T::name();
        if let Some(known) = KNOWN.read().get(name.as_ref()) {
            return Arc::clone(known);
        }
        let mut shape = Self::of_schema::<T>();
        if let Kind::Object(object) = &mut shape.kind {
            object.ignored = T::IGNORED;
        }
        Arc::clone(KNOWN.write().entry(name.into_owned()).or_insert(Arc::new(shape)))
    }

    fn of_schema<T: ToSchema>() -> Self {
        let mut named = Vec::new();
        T::schemas(&mut named);
        let json = |schema| serde_json::to_value(schema).expect("invariant: a schema can be written as JSON");
        let named = named.into_iter().map(|(name, schema)| (name, json(schema))).collect();
        Reader(&named).shape(&json(T::schema()), DEPTH_MAX)
    }

    /// The same for a body whose lists have items of any shape: they are read one by one.
    #[must_use]
    pub fn with_any_items(&self) -> Self {
        let mut shape = self.clone();
        if let Kind::Object(object) = &mut shape.kind {
            for member in &mut object.members {
                if let Kind::List { item, .. } = &mut member.shape.kind {
                    **item = Self::from(Kind::Any);
                }
            }
        }
        shape
    }

    /// Some value of this shape, as JSON.
    pub(super) fn placeholder(&self) -> String {
        match &self.kind {
            Kind::Any => "null".to_owned(),
            Kind::Text | Kind::Time => "\"\"".to_owned(),
            Kind::TaskId => format!("\"{}\"", punctual_core::ids::TaskId::default()),
            Kind::Word(words) => format!("\"{}\"", words.first().map_or("", String::as_str)),
            Kind::Whole { least, .. } => least.unwrap_or(0).to_string(),
            Kind::Number { least, .. } => least.unwrap_or(0.0).to_string(),
            Kind::Flag => "false".to_owned(),
            Kind::List { .. } => "[]".to_owned(),
            Kind::Map { .. } => "{}".to_owned(),
            Kind::Object(object) => {
                let required = object.members.iter().filter(|member| member.is_required);
                let members = required.map(|member| format!("\"{}\":{}", member.name, member.shape.placeholder()));
                format!("{{{}}}", members.collect::<Vec<_>>().join(","))
            }
            Kind::Either(shapes) => shapes.first().map_or_else(|| "null".to_owned(), Self::placeholder),
        }
    }

    /// The words that it may be.
    pub(super) fn words(&self) -> Vec<&str> {
        match &self.kind {
            Kind::Word(words) => words.iter().map(String::as_str).collect(),
            Kind::Either(shapes) => shapes.iter().flat_map(Self::words).collect(),
            _ => Vec::new(),
        }
    }
}

impl From<Kind> for Shape {
    fn from(kind: Kind) -> Self {
        Self { kind, is_nullable: false }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Any => f.write_str("JSON"),
            Kind::Text => f.write_str("a string"),
            Kind::Time => f.write_str("a time, a string such as 2026-05-22T18:00:00Z"),
            Kind::TaskId => f.write_str("the id of a task, a string such as task_01981e2c-5b7a-7c3e-9f00-3a4b5c6d7e8f"),
            Kind::Word(words) => write!(f, "one of {}", words.join(", ")),
            Kind::Whole { least: Some(least), most: Some(most) } => {
                write!(f, "a whole number from {least} to {most}")
            }
            Kind::Whole { least: Some(least), most: None } => write!(f, "a whole number that is at least {least}"),
            Kind::Whole { .. } => f.write_str("a whole number"),
            Kind::Number { least: Some(least), most: Some(most) } => write!(f, "a number from {least} to {most}"),
            Kind::Number { .. } => f.write_str("a number"),
            Kind::Flag => f.write_str("true or false"),
            Kind::List { .. } => f.write_str("a list"),
            Kind::Map { .. } | Kind::Object(_) => f.write_str("an object"),
            Kind::Either(shapes) => {
                let shapes: Vec<String> = shapes.iter().map(ToString::to_string).collect();
                f.write_str(&shapes.join(", or "))
            }
        }
    }
}

/// Reads schemas; it has those that others refer to by name.
struct Reader<'a>(&'a HashMap<String, Value>);

impl Reader<'_> {
    fn shape(&self, schema: &Value, depth: usize) -> Shape {
        let Some(depth) = depth.checked_sub(1) else { return Kind::Any.into() };
        if let Some(name) = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
            if name == TaskRefForm::name() {
                return Kind::TaskId.into();
            }
            return self.0.get(name).map_or(Kind::Any.into(), |schema| self.shape(schema, depth));
        }
        for keyword in ["oneOf", "anyOf", "allOf"] {
            if let Some(schemas) = schema[keyword].as_array() {
                return self.either(schemas, depth);
            }
        }
        if let Some(words) = schema["enum"].as_array() {
            return words_of(words.iter());
        }
        if schema["const"].is_string() {
            return words_of(std::iter::once(&schema["const"]));
        }
        let types: Vec<&str> = match &schema["type"] {
            Value::String(one) => vec![one],
            Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        let is_nullable = types.contains(&"null");
        let mut types = types.into_iter().filter(|name| *name != "null");
        let kind = match (types.next(), types.next()) {
            (Some(name), None) => self.kind(name, schema, depth),
            _ => Kind::Any,
        };
        Shape { kind, is_nullable }
    }

    fn kind(&self, name: &str, schema: &Value, depth: usize) -> Kind {
        let size = |keyword: &str| schema[keyword].as_u64().and_then(|most| usize::try_from(most).ok());
        match name {
            "string" if schema["format"] == "date-time" => Kind::Time,
            "string" => Kind::Text,
            "boolean" => Kind::Flag,
            "integer" => {
                let bound = |keyword: &str| schema[keyword].as_i64().map(i128::from);
                Kind::Whole { least: bound("minimum"), most: bound("maximum") }
            }
            "number" => Kind::Number { least: schema["minimum"].as_f64(), most: schema["maximum"].as_f64() },
            "array" => Kind::List {
                item: Box::new(self.shape(&schema["items"], depth)),
                most: size("maxItems").unwrap_or(ENTRIES_MAX),
            },
            "object" if schema["properties"].is_object() || !schema["additionalProperties"].is_object() => {
                Kind::Object(self.object(schema, depth))
            }
            "object" => Kind::Map {
                value: Box::new(self.shape(&schema["additionalProperties"], depth)),
                most: size("maxProperties").unwrap_or(ENTRIES_MAX),
            },
            _ => Kind::Any,
        }
    }

    fn object(&self, schema: &Value, depth: usize) -> Object {
        let required: Vec<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let properties = schema["properties"].as_object().into_iter().flatten();
        let members = properties.map(|(name, schema)| Property {
            name: name.clone(),
            shape: self.shape(schema, depth),
            is_required: required.contains(&name.as_str()),
        });
        Object { members: members.collect(), ignored: &[], is_open: schema["additionalProperties"] != false }
    }

    /// What one of several schemas describes. Words of all of them are one list of words.
    fn either(&self, schemas: &[Value], depth: usize) -> Shape {
        let is_null = |schema: &&Value| schema["type"] == "null";
        let mut shapes: Vec<Shape> = Vec::new();
        let mut is_nullable = schemas.iter().any(|schema| is_null(&schema));
        for schema in schemas.iter().filter(|schema| !is_null(schema)) {
            let shape = self.shape(schema, depth);
            is_nullable |= shape.is_nullable;
            match (shapes.last_mut().map(|last| &mut last.kind), shape.kind) {
                (Some(Kind::Word(words)), Kind::Word(more)) => words.extend(more),
                (_, kind) => shapes.push(kind.into()),
            }
        }
        let kind = if shapes.len() == 1 { shapes.swap_remove(0).kind } else { Kind::Either(shapes) };
        Shape { kind, is_nullable }
    }
}

fn words_of<'a>(words: impl Iterator<Item = &'a Value>) -> Shape {
    let (nulls, words): (Vec<&Value>, Vec<&Value>) = words.partition(|word| word.is_null());
    let words = words.into_iter().filter_map(Value::as_str).map(str::to_owned).collect();
    Shape { kind: Kind::Word(words), is_nullable: !nulls.is_empty() }
}
