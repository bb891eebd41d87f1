//! What is refused, how, and that nothing is stored of it.

mod bodies;
mod fields;
mod routes;
mod targets;
mod times;
