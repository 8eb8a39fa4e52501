//! Whether what the system has cached of a file is worth reading there, through a map.
//!
//! A mapped page that the system has dropped costs a page fault when it is read: a wait for the device that
//! nobody planned, a page at a time. So the first read through a map, and one in [`LOOK_EVERY`] after it,
//! is preceded by a look ([`File::read_cached_at`](super::File::read_cached_at)). Looks come more and more rarely
//! while they find what they look for, down to one in [`LOOK_RARELY`] after some thirty of them. When one finds nothing,
//! the map rests for a
//! number of reads, twice as many each time ([`MOST_REST`] at most); each look that finds what it looks
//! for takes a 64th off the next rest. The first read after a rest is looked at again, and then one in [`LOOK_EVERY`].
//!
//! So a file of which nothing is cached meets no fault, and one that stays in memory is read there nearly
//! always. Between them: the map is used while fewer than some 2 % of looks find nothing (there a doubling
//! and the steps back are in balance), and of the reads through it as many may meet a fault; above that
//! share it rests nearly always.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// One in so many reads through a map is looked at: at first, or where looks did not find what they looked for,
const LOOK_EVERY: u32 = 64;
/// and where they always did.
const LOOK_RARELY: u32 = 512;
/// So many reads a map rests: at least, and at most.
const LEAST_REST: u32 = 256;
const MOST_REST: u32 = 1 << 16;

/// When whoever reads through the map looks next: how many looks had found nothing so far (the upper half), and
/// how many reads are left. Each thread may have its own, on memory that no other writes to.
#[derive(Debug, Default)]
pub struct Turn(AtomicU64);

/// What is known of one file. Counts are imprecise among threads: no answer depends on them.
#[derive(Debug, Default)]
pub struct Residence {
    /// How many looks found nothing.
    losses: AtomicU32,
    /// How many reads lie between looks, beyond [`LOOK_EVERY`].
    patience: AtomicU32,
    /// For so many more reads the map is not used.
    rest: AtomicU32,
    /// How long it rests when it is lost next.
    next_rest: AtomicU32,
    /// The last look found what it looked for.
    was_there: AtomicBool,
}

impl Residence {
    /// Whether the map rests, at one more read. Counts the read.
    pub fn rests(&self) -> bool {
        let rest = self.rest.load(Relaxed);
        if rest > 0 {
            self.rest.store(rest - 1, Relaxed);
        }
        rest > 0
    }

    /// Whether to look before one more read through the map, by whose turn it is. Counts the read.
    pub fn is_due(&self, turn: &Turn) -> bool {
        let (losses, known) = (u64::from(self.losses.load(Relaxed)), turn.0.load(Relaxed));
        let until_look = if known >> 32 == losses { known as u32 } else { 0 };
        let next = || LOOK_EVERY + self.patience.load(Relaxed) - 1;
        let left = until_look.checked_sub(1).unwrap_or_else(next);
        turn.0.store(losses << 32 | u64::from(left), Relaxed);
        until_look == 0
    }

    /// Whether the last look found what it looked for. If not, one that finds nothing says of nothing that it is
    /// gone: perhaps it was never there.
    pub fn was_there(&self) -> bool {
        self.was_there.load(Relaxed)
    }

    /// A look found what it looked for, or did not: then the map rests.
    pub fn saw(&self, is_there: bool) {
        self.learn(is_there, 1);
    }

    /// The same where each read is looked at: rests are as many looks long, not as many reads.
    pub fn saw_each(&self, is_there: bool) {
        self.learn(is_there, LOOK_EVERY);
    }

    /// Such a share of a rest is taken.
    fn learn(&self, is_there: bool, share: u32) {
        self.was_there.store(is_there, Relaxed);
        let next = self.next_rest.load(Relaxed).max(LEAST_REST);
        let patience = self.patience.load(Relaxed);
        let longer = patience + (LOOK_EVERY + patience) / 16;
        let most = LOOK_RARELY - LOOK_EVERY;
        self.patience.store(if is_there { longer.min(most) } else { 0 }, Relaxed);
        if is_there {
            self.next_rest.store(next - next / 64, Relaxed);
        } else {
            self.rest.store(next / share, Relaxed);
            self.losses.fetch_add(1, Relaxed);
            self.next_rest.store((next * 2).min(MOST_REST), Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads through the map until one is due to be looked at, that one included.
    fn until_due(residence: &Residence, turn: &Turn) -> u32 {
        1 + (0..).take_while(|_| !residence.is_due(turn)).count() as u32
    }

    #[test]
    fn looks_come_rarely_where_they_find_what_they_look_for_and_often_after_one_that_does_not() {
        let (residence, turn) = (Residence::default(), Turn::default());
        let until_due = |residence| until_due(residence, &turn);
        assert_eq!(until_due(&residence), 1, "the first read is looked at");
        residence.saw(true);
        assert_eq!(until_due(&residence), LOOK_EVERY);
        let mut before = LOOK_EVERY;
        for _ in 0..40 {
            residence.saw(true);
            let next = until_due(&residence);
            assert!(next >= before && next <= LOOK_RARELY, "{before}, then {next}");
            before = next;
        }
        assert_eq!(before, LOOK_RARELY);
        residence.saw(false);
        assert!((0..LEAST_REST).all(|_| residence.rests()) && !residence.rests());
        assert_eq!(until_due(&residence), 1, "the first read after a rest is looked at");
        residence.saw(true);
        assert!(until_due(&residence) < 2 * LOOK_EVERY);
    }
    /// Where one thread's look found nothing all look before they read on.
    #[test]
    fn a_look_that_finds_nothing_is_everybodys() {
        let (residence, turns) = (Residence::default(), [Turn::default(), Turn::default()]);
        for turn in &turns {
            assert_eq!(until_due(&residence, turn), 1, "the first read of each is looked at");
            residence.saw(true);
        }
        assert_eq!(until_due(&residence, &turns[0]), LOOK_EVERY);
        residence.saw(false);
        turns.iter().for_each(|turn| assert_eq!(until_due(&residence, turn), 1));
    }

    /// With the rests of what is looked at now and then, one in a hundred that is not there would have kept the others from
    /// being lent: two of three.
    #[test]
    fn where_each_read_is_looked_at_one_that_is_not_there_costs_few() {
        let lent = |missing_one_in: u32| {
            let (residence, mut lent) = (Residence::default(), 0);
            for read in 1..100_000 {
                if !residence.rests() {
                    let is_there = read % missing_one_in > 0;
                    residence.saw_each(is_there);
                    lent += u32::from(is_there);
                }
            }
            lent
        };
        assert!(lent(1000) > 99_000 && lent(100) > 90_000);
        assert!(lent(10) < 5_000, "where a tenth is not there it rests nearly always");
    }
}
