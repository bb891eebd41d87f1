//! Explores the model by hand: `bug NAME` shows how a planted bug is found, `deep` checks worlds
//! that are too large for the tests.

use std::time::Instant;

use punctual_model::{Bug, Finding, Liveness, ModelBounds, Protocol, Route, check, describe, shortest_trace, walk};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["bug", name] => match Bug::ALL.into_iter().find(|bug| format!("{bug:?}") == name) {
            Some(bug) => show(bug),
            None => println!("one of {:?}", Bug::ALL),
        },
        ["deep"] => {
            for route in [Route::Pull, Route::Push] {
                let begun = Instant::now();
                let report = check(&Protocol::correct(ModelBounds::deep(route)));
                println!("{route:?}: {} worlds, {} steps, {:.1?}", report.worlds, report.steps, begun.elapsed());
                for (law, trace) in report.broken {
                    println!("broken: {}\n{}", law.sentence(), describe(&trace));
                }
            }
        }
        _ => println!("explore bug NAME | explore deep"),
    }
}

fn show(bug: Bug) {
    let protocol = Protocol::with(bug);
    match bug.finding() {
        Finding::Broken(law) => match shortest_trace(&protocol, law) {
            Some(trace) => println!("broken: {}\n{}", law.sentence(), describe(&trace)),
            None => println!("not found"),
        },
        Finding::Stuck => match walk(&protocol) {
            Liveness::Stuck(trace) | Liveness::Endless(trace) => println!("stuck:\n{}", describe(&trace)),
            Liveness::Finishes(worlds) => println!("not found in {worlds} worlds"),
        },
    }
}
