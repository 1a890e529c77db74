//! The draws of one client: which lock next, for how long, and how long between two requests.
//!
//! Rule    two clients of equal seeds draw the same, whatever the server answers: pauses have a source of their own.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp1, Zipf};

use super::plan::{Hold, Keys, Plan};

/// The draws of one client.
#[derive(Debug)]
pub(super) struct Draws {
    work: StdRng,
    pauses: StdRng,
    zipf: Option<Zipf<f64>>,
    count: usize,
    hold: Hold,
    poll: Duration,
}

impl Draws {
    /// Those of the client of this number.
    pub(super) fn new(plan: &Plan, client: usize) -> Self {
        let zipf = match plan.keys {
            // The bounds of a plan are those of the distribution.
            Keys::Zipf { exponent, count } => Zipf::new(count as f64, exponent).ok(),
            Keys::One(_) | Keys::Uniform { .. } => None,
        };
        let seed = plan.seed ^ (client as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self {
            work: StdRng::seed_from_u64(seed),
            pauses: StdRng::seed_from_u64(!seed),
            zipf,
            count: plan.keys.count(),
            hold: plan.hold,
            poll: plan.poll,
        }
    }

    /// The number of the next lock, from 0.
    pub(super) fn key(&mut self) -> usize {
        match &self.zipf {
            Some(zipf) => (zipf.sample(&mut self.work) as usize).clamp(1, self.count) - 1,
            None => self.work.random_range(0..self.count),
        }
    }

    /// How long the next lock is kept.
    pub(super) fn hold(&mut self) -> Duration {
        match self.hold {
            Hold::Constant(hold) => hold,
            Hold::Exponential(mean) => {
                let share: f64 = Exp1.sample(&mut self.work);
                mean.mul_f64(share.min(HOLD_MEANS_MAX))
            }
            Hold::Uniform(least, most) => self.work.random_range(least..=most),
        }
    }

    /// How long until a client asks again.
    pub(super) fn pause(&mut self) -> Duration {
        self.around(self.poll)
    }

    /// Between half and one and a half of a time.
    pub(super) fn around(&mut self, mean: Duration) -> Duration {
        mean.mul_f64(self.pauses.random_range(0.5..1.5))
    }
}

/// The longest of exponentially distributed holds, in means.
const HOLD_MEANS_MAX: f64 = 10.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::plan::Node;
    use redlatch_client::Trust;

    fn draws(keys: &str, hold: &str, seed: u64, client: usize) -> Draws {
        let node = Node::new("redis://", Trust::default()).unwrap();
        let (keys, hold) = (Keys::parse(keys).unwrap(), Hold::parse(hold).unwrap());
        Draws::new(&Plan { keys, hold, seed, ..Plan::new(vec![node]) }, client)
    }

    #[test]
    fn a_seed_gives_the_same_draws_again_and_another_seed_others() {
        let work = |seed, client, pauses| {
            let mut draws = draws("uniform:1000", "exp:5ms", seed, client);
            (0..50)
                .map(|_| {
                    for _ in 0..pauses {
                        draws.pause();
                    }
                    (draws.key(), draws.hold())
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(work(7, 3, 0), work(7, 3, 2), "pauses do not change the work");
        assert_ne!(work(7, 3, 0), work(8, 3, 0));
        assert_ne!(work(7, 3, 0), work(7, 4, 0));
    }

    #[test]
    fn distributions_have_their_shapes() {
        let count = |keys: &str, key: usize| {
            let mut draws = draws(keys, "0", 1, 0);
            (0..20_000).filter(|_| draws.key() == key).count()
        };
        // A Zipf distribution with exponent 1 of 4 keys: 12/25, 6/25, 4/25, 3/25.
        for (key, share) in [(0, 0.48), (1, 0.24), (2, 0.16), (3, 0.12)] {
            let found = count("zipf:1:4", key) as f64 / 20_000.0;
            assert!((found - share).abs() < 0.02, "{key}: {found}");
        }
        assert!((count("uniform:4", 3) as f64 / 20_000.0 - 0.25).abs() < 0.02);
        assert_eq!(count("lock:a", 0), 20_000);
        let mean = |hold: &str| {
            let mut draws = draws("lock:a", hold, 1, 0);
            (0..20_000).map(|_| draws.hold().as_secs_f64()).sum::<f64>() / 20_000.0 * 1e3
        };
        assert!((mean("exp:5ms") - 5.0).abs() < 0.2, "{}", mean("exp:5ms"));
        assert!((mean("uniform:1ms:5ms") - 3.0).abs() < 0.1);
        assert!((mean("const:5ms") - 5.0).abs() < 1e-9);
    }
}
