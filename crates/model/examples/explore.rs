//! Explores the model by hand: `bug NAME` tells how a planted bug shows, `deep` checks worlds that
//! are too large for the tests.

use std::time::Instant;

use punctual_model::{Bounds, Bug, Finding, Liveness, Protocol, Route, check, shortest_way, tell, walk};

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
                let report = check(&Protocol::correct(Bounds::deep(route)));
                println!("{route:?}: {} worlds, {} steps, {:.1?}", report.worlds, report.steps, begun.elapsed());
                for (law, way) in report.broken {
                    println!("broken: {}\n{}", law.sentence(), tell(&way));
                }
            }
        }
        _ => println!("explore bug NAME | explore deep"),
    }
}

fn show(bug: Bug) {
    let protocol = Protocol::with(bug);
    match bug.finding() {
        Finding::Broken(law) => match shortest_way(&protocol, law) {
            Some(way) => println!("broken: {}\n{}", law.sentence(), tell(&way)),
            None => println!("not found"),
        },
        Finding::Stuck => match walk(&protocol) {
            Liveness::Stuck(way) | Liveness::Endless(way) => println!("stuck:\n{}", tell(&way)),
            Liveness::Rests(worlds) => println!("not found in {worlds} worlds"),
        },
    }
}
