use std::time::Instant;
use punctual_model::*;

#[test]
fn the_protocol_holds() {
    for (name, bounds) in Bounds::all() {
        let begun = Instant::now();
        let report = check(Protocol::correct(bounds), None, 2);
        println!("{name}: {} worlds, {} steps, depth {}, {:?}", report.worlds, report.steps, report.depth, begun.elapsed());
        for (law, way) in &report.broken { println!("{}\n{}", law.sentence(), tell(way)); }
        assert!(report.broken.is_empty());
        assert_eq!(report.unseen, Vec::<&str>::new());
    }
}
