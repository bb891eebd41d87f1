//! The nemesis that kills servers: at random moments, and at dangerous ones.

use std::time::Duration;

use punctual_core::ids::TaskId;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinSet;

use crate::caller::Wish;
use crate::history::{CallAnswer, HistoryEvent, Op, WorkerReport};
use crate::machine::Machine;
use crate::workload::{QUEUE, Scene};

/// The longest wait for the chosen moment; then it kills anyway.
const PATIENCE: Duration = Duration::from_secs(2);
/// The pause between two checks for the chosen moment.
const LOOK: Duration = Duration::from_millis(1);
/// A server listens within about this time; a kill during the start comes within it.
const BIRTH: Duration = Duration::from_millis(120);

/// The moment of a kill.
#[derive(Clone, Copy, Debug)]
enum Aim {
    /// The moment after a burst of acknowledgements.
    Acknowledgements,
    /// Any moment.
    Nothing,
    /// The start after a kill, once or twice.
    Start,
    /// Webhooks that wait for their answers.
    Webhooks,
    /// The moment after a completion was accepted.
    Completion,
}

const AIMS: [Aim; 5] = [Aim::Acknowledgements, Aim::Nothing, Aim::Start, Aim::Webhooks, Aim::Completion];

/// Kills a server, and starts it again.
pub struct Nemesis {
    scene: Scene,
    dice: StdRng,
}

impl Nemesis {
    /// A nemesis with its own random numbers.
    pub fn new(scene: Scene, seed: u64) -> Self {
        Self { scene, dice: StdRng::seed_from_u64(seed ^ 0x6b69_6c6c) }
    }

    /// One cycle: lets the server work, kills it at a chosen moment, and starts it again.
    pub async fn strike(&mut self, machine: &mut Machine, cycle: usize) {
        let aim = AIMS.get(cycle).copied().unwrap_or_else(|| AIMS[self.dice.random_range(0..AIMS.len())]);
        self.scene.caller.recorder().act(format!("cycle {cycle}, aimed at {aim:?}"));
        tokio::time::sleep(Duration::from_millis(self.dice.random_range(0..800))).await;
        self.leave_behind(cycle).await;
        match aim {
            Aim::Acknowledgements => self.burst().await,
            Aim::Nothing => tokio::time::sleep(Duration::from_millis(self.dice.random_range(0..1_000))).await,
            Aim::Start => {}
            Aim::Webhooks => self.webhooks().await,
            Aim::Completion => self.completion().await,
        }
        machine.kill();
        if let Aim::Start = aim {
            for _ in 0..self.dice.random_range(1..4) {
                machine.kill_during_start(BIRTH.mul_f64(self.dice.random())).await;
            }
        }
        machine.start().await;
    }

    /// A task alone in its lane, due only after the kill: no later submission makes a hint for it.
    async fn leave_behind(&self, cycle: usize) {
        let wish = Wish::new(self.scene.key("alone"), QUEUE).of_type(&format!("alone-{cycle}"));
        self.scene.caller.submit_surely(&wish.due_at(self.scene.in_millis(2_500))).await;
    }

    /// Many submissions at once, all of them answered.
    async fn burst(&self) {
        let mut clients = JoinSet::new();
        for n in 0..16 {
            let caller = self.scene.caller.clone();
            let wish = Wish::new(self.scene.key("burst"), QUEUE);
            let wish = if n % 4 == 0 { wish.pushed_to(&self.scene.targets.slow()) } else { wish };
            clients.spawn(async move { caller.submit(&wish).await });
        }
        clients.join_all().await;
    }

    /// Slow webhooks, some of which have arrived.
    async fn webhooks(&self) {
        let wish = || Wish::new(self.scene.key("slow"), QUEUE).pushed_to(&self.scene.targets.slow());
        let wishes: Vec<Wish> = (0..8).map(|_| wish()).collect();
        self.scene.caller.submit_batch(&wishes).await;
        self.until(|scene| scene.targets.waiting() > 0).await;
    }

    /// A completion that was accepted since.
    async fn completion(&self) {
        let accepted = |events: &[HistoryEvent]| events.iter().rev().find_map(completed);
        let before = self.scene.caller.recorder().peek(accepted);
        self.until(|scene| scene.caller.recorder().peek(accepted) != before).await;
    }

    async fn until(&self, come: impl Fn(&Scene) -> bool) {
        let moment = async {
            while !come(&self.scene) {
                tokio::time::sleep(LOOK).await;
            }
        };
        // The load may not produce this moment.
        tokio::time::timeout(PATIENCE, moment).await.ok();
    }
}

fn completed(event: &HistoryEvent) -> Option<(TaskId, u64)> {
    match event {
        HistoryEvent::Call(call) if matches!(call.answer, CallAnswer::Ok(_)) => match call.op {
            Op::Settle { task, token, report: WorkerReport::Completed, .. } => Some((task, token)),
            _ => None,
        },
        _ => None,
    }
}
