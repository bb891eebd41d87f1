//! What is refused, how, and that nothing of it is stored.

mod bodies;
mod fields;
mod items;
mod parameters;
mod routes;
mod targets;
mod times;
mod together;
mod voice;
