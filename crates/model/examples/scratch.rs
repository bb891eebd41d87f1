//! scratch
use std::time::Instant;
use punctual_model::*;
fn main() {
    let a: Vec<usize> = std::env::args().skip(2).map(|a| a.parse().unwrap()).collect();
    let tasks = match std::env::args().nth(1).unwrap().as_str() { "pull" => vec![Route::Pull], "push" => vec![Route::Push], "pp" => vec![Route::Pull, Route::Push], _ => vec![Route::Pull, Route::Pull] };
    let bounds = Bounds { tasks, max_retries: a[0] as u8, redrives: a[1], give_backs: a[2], clients: a[3], crashes: a[4] as u8, ..Bounds::pull() };
    let begun = Instant::now();
    let report = check(Protocol::correct(bounds), None, 1);
    println!("{:?}: {} worlds, {} steps, depth {}, {:?}", a, report.worlds, report.steps, report.depth, begun.elapsed());
}
