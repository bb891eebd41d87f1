//! The tools of the tests, tried on what they are for.

mod it {
    mod postgres;
    mod proxy;
}
