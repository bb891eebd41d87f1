//! Compares a document with a shape: lists the faults, and writes the document without them.
//!
//! Members at fault are left out if they may be, and replaced by some value of their shape if they
//! are required, so that the type can read the rest. Whole numbers that are written as `5.0` are
//! written as `5`. Everything else keeps its text.

use std::fmt::Write as _;

use punctual_client::problem::FieldError;
use punctual_core::ids::TaskId;
use serde_json::value::RawValue;

use super::excerpt::{excerpt, is_hidden};
use super::members::{self, OneLevel};
use super::shape::{Kind, Object, Shape};
use crate::error::pointer_token;
use crate::faults::Faults;
use crate::nearest::did_you_mean;

/// What becomes of a `null` where the schema has none, in a member that may be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nulls {
    /// It is kept: the type may take it for an absent member.
    Kept,
    /// It is a fault.
    Judged,
}

/// The repair of one document.
pub struct Repair<'a> {
    faults: &'a mut Faults,
    nulls: Nulls,
    /// Where it is in the document.
    pointer: String,
    /// Whether what is here may not be shown.
    is_hidden: bool,
}

impl<'a> Repair<'a> {
    /// A repair that adds what it finds to `faults`.
    pub fn new(faults: &'a mut Faults, nulls: Nulls) -> Self {
        Self { faults, nulls, pointer: String::new(), is_hidden: false }
    }

    /// The document without its faults; none if nothing of it is left.
    pub fn document(mut self, shape: &Shape, text: &str) -> Option<String> {
        let raw: &RawValue = serde_json::from_str(text).ok()?;
        self.value(shape, raw)
    }

    /// A value without its faults; none if the fault is its own.
    fn value(&mut self, shape: &Shape, raw: &RawValue) -> Option<String> {
        let text = raw.get();
        if text == "null" && shape.is_nullable {
            return Some(text.to_owned());
        }
        let first = text.as_bytes().first().copied().unwrap_or_default();
        match (&shape.kind, first) {
            (Kind::Any, _)
            | (Kind::Text | Kind::Time, b'"')
            | (Kind::Flag, b't' | b'f')
            | (Kind::Number { .. }, b'-' | b'0'..=b'9') => Some(text.to_owned()),
            (Kind::TaskId | Kind::Word(_), b'"') if is_known(&shape.kind, text) => Some(text.to_owned()),
            (Kind::Whole { least, most }, b'-' | b'0'..=b'9') => match whole(text) {
                Some(number) if least.is_none_or(|least| number >= least) && most.is_none_or(|most| number <= most) => {
                    Some(number.to_string())
                }
                _ => self.fault(shape, text),
            },
            (Kind::List { item, most }, b'[') => self.list(item, *most, raw),
            (Kind::Map { value, most }, b'{') => self.map(value, *most, raw),
            (Kind::Object(object), b'{') => self.object(object, raw),
            (Kind::Either(shapes), _) => {
                let good = shapes.iter().find_map(|shape| {
                    let mut faults = Faults::default();
                    Repair::new(&mut faults, self.nulls).value(shape, raw).filter(|_| faults.is_empty())
                });
                good.or_else(|| self.fault(shape, text))
            }
            _ => self.fault(shape, text),
        }
    }

    fn list(&mut self, item: &Shape, most: usize, raw: &RawValue) -> Option<String> {
        let Some(items) = members::items(raw, most) else { return self.too_many(most, raw) };
        let mut written = Vec::with_capacity(items.len());
        for (at, raw) in items.into_iter().enumerate() {
            let good = self.at(&at.to_string(), |repair| repair.value(item, raw));
            match good {
                Some(good) => written.push(good),
                // Any word would be one that nobody sent. The others keep their positions.
                None if matches!(item.kind, Kind::Word(_)) => {}
                None => written.push(item.placeholder()),
            }
        }
        Some(format!("[{}]", written.join(",")))
    }

    fn map(&mut self, value: &Shape, most: usize, raw: &RawValue) -> Option<String> {
        let Some(entries) = members::entries(raw, most) else { return self.too_many(most, raw) };
        let mut written = ObjectText::new();
        for (name, raw) in entries {
            if let Some(good) = self.at(&pointer_token(&name), |repair| repair.value(value, raw)) {
                written.push(&name, &good);
            }
        }
        Some(written.finish())
    }

    fn object(&mut self, object: &Object, raw: &RawValue) -> Option<String> {
        let names = || object.members.iter().map(|member| member.name.as_str());
        let is_ignored = |name: &str| object.is_open || object.ignored.contains(&name);
        // One position beyond those of the members is that of everything that is ignored.
        let position = |name: &str| {
            names().position(|known| known == name).or_else(|| is_ignored(name).then_some(object.members.len()))
        };
        let OneLevel { known, unknown, more } = OneLevel::of(raw, position)?;
        let mut written = ObjectText::new();
        for (at, member) in object.members.iter().enumerate() {
            let good = self.at(&member.name, |repair| match known.get(&at) {
                Some(raw) if raw.get() == "null" && !member.is_required && repair.nulls == Nulls::Kept => {
                    Some("null".to_owned())
                }
                Some(raw) => repair.value(&member.shape, raw),
                None if member.is_required => {
                    repair.faults.add_of_shape(FieldError::new(repair.pointer.clone(), "is required"));
                    None
                }
                None => None,
            });
            match good {
                Some(good) => written.push(&member.name, &good),
                None if member.is_required => written.push(&member.name, &member.shape.placeholder()),
                None => {}
            }
        }
        for (name, raw) in unknown {
            let message = format!("is not a known field{}", did_you_mean(&name, names()));
            self.at(&pointer_token(&name), |repair| repair.add(message, raw.get()));
        }
        self.faults.add_more(more);
        Some(written.finish())
    }

    /// Does something with what is one step below.
    fn at<R>(&mut self, token: &str, look: impl FnOnce(&mut Self) -> R) -> R {
        let (length, was_hidden) = (self.pointer.len(), self.is_hidden);
        self.pointer.push('/');
        self.pointer.push_str(token);
        self.is_hidden |= is_hidden(token);
        let seen = look(self);
        self.pointer.truncate(length);
        self.is_hidden = was_hidden;
        seen
    }

    fn too_many(&mut self, most: usize, raw: &RawValue) -> Option<String> {
        self.add(format!("must have at most {most} entries"), raw.get());
        None
    }

    /// The value is not of its shape.
    fn fault(&mut self, shape: &Shape, text: &str) -> Option<String> {
        let near = string(text).map_or_else(String::new, |text| did_you_mean(&text, shape.words()));
        self.add(format!("must be {shape}{near}"), text);
        None
    }

    fn add(&mut self, message: String, text: &str) {
        let is_shown = !self.is_hidden && !self.pointer.is_empty();
        let value = if is_shown { excerpt(text) } else { None };
        self.faults.add_of_shape(FieldError::new(self.pointer.clone(), message).with_value(value));
    }
}

/// Whether a string is one of the words, or an id.
fn is_known(kind: &Kind, text: &str) -> bool {
    string(text).is_some_and(|text| match kind {
        Kind::Word(words) => words.contains(&text),
        _ => text.parse::<TaskId>().is_ok(),
    })
}

/// The string that a JSON text is.
fn string(text: &str) -> Option<String> {
    if text.starts_with('"') { serde_json::from_str(text).ok() } else { None }
}

/// The whole number that a JSON number is, within what 64 bits can hold.
fn whole(text: &str) -> Option<i128> {
    let number = if let Ok(number) = text.parse::<i128>() {
        number
    } else {
        let number: f64 = text.parse().ok()?;
        #[expect(clippy::cast_possible_truncation, reason = "a whole double below 2^64 fits, and others are left out")]
        (number.fract() == 0.0 && number.abs() < 18_446_744_073_709_551_616.0).then_some(number as i128)?
    };
    (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(&number).then_some(number)
}

/// An object that is being written.
struct ObjectText(String);

impl ObjectText {
    fn new() -> Self {
        Self("{".to_owned())
    }

    fn push(&mut self, name: &str, value: &str) {
        let comma = if self.0.len() > 1 { "," } else { "" };
        let name = serde_json::to_string(name).expect("invariant: a name can be written as JSON");
        write!(self.0, "{comma}{name}:{value}").expect("invariant: a string can be written to");
    }

    fn finish(mut self) -> String {
        self.0.push('}');
        self.0
    }
}
