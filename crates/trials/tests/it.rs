//! The short form of the trials: the product passes them, and the product with a planted bug does
//! not.
//!
//! The long form is the program `trials`.

mod it {
    mod cluster;
    mod kills;
    mod races;
}
