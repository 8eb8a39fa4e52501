//! What reads have paid for data that is not settled, in requests that they would not have made of settled data; or for
//! a filter over runs, in runs that they would not have asked; or for one run instead of several, in shares of a request.
//!
//! A value that still stands apart from its key takes a request more than one in its block. Nobody knows how often it will be
//! read; but once reads have paid as much as settling costs, settling costs no more than twice the best in hindsight,
//! whatever follows (rent or buy: Karlin et al., "Competitive Snoopy Caching", 1988). What it costs, the store says.

use std::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

/// Few reads say little: no price of settling is asked for before so much is paid.
pub const LEAST: u64 = 1024;

/// A device answers a request in 50 to 100 us; a share of that is some 40 ns.
pub const SHARES: u64 = 2048;

/// What failed is tried again after so many times what it is asked for at first.
const PUT_OFF: u64 = 64;

/// Whether to merge runs is asked once reads have paid for so many requests.
const LEAST_FOR_MERGING: u64 = 128;

/// See the module page.
#[derive(Debug)]
pub struct Rent {
    paid: AtomicU64,
    /// The price is asked for once so many are paid: it takes a look at many tables.
    asked_at: AtomicU64,
    /// Not before that.
    least: u64,
}

impl Default for Rent {
    fn default() -> Rent {
        Rent::asked_from(LEAST)
    }
}

impl Rent {
    /// What pays for one run instead of several, in shares.
    pub fn for_merging() -> Rent {
        Rent::asked_from(LEAST_FOR_MERGING * SHARES)
    }

    /// One whose price is not asked for before so much is paid.
    fn asked_from(least: u64) -> Rent {
        Rent { paid: AtomicU64::new(0), asked_at: AtomicU64::new(least), least }
    }

    /// Counts so many requests, runs asked in vain, or shares. True: somebody should ask whether they cover the price. Once that is so, once in a while:
    /// settling may have to wait.
    pub fn pay(&self, requests: u64) -> bool {
        let before = self.paid.fetch_add(requests, SeqCst);
        let (now, asked_at) = (before + requests, self.asked_at.load(SeqCst));
        now >= asked_at && (before < asked_at || now / self.least > before / self.least)
    }

    /// What was paid since it last began anew.
    pub fn paid(&self) -> u64 {
        self.paid.load(Relaxed)
    }

    /// Whether so much is paid that somebody should ask for the price.
    pub fn is_asked(&self) -> bool {
        // In this order: who has paid enough for what it was is seen, or what it is now is.
        let asked_at = self.asked_at.load(SeqCst);
        self.paid.load(SeqCst) >= asked_at
    }

    /// Whether what was paid covers the price, and it can be settled now: else there is no price. That is asked for again once
    /// a quarter of what is missing was paid too, or so many as are asked for at first. The price may go by what was paid.
    pub fn covers(&self, price: impl FnOnce(u64) -> Option<u64>) -> bool {
        let paid = self.paid.load(SeqCst);
        if paid < self.asked_at.load(Relaxed) {
            return false;
        }
        let missing = price(paid).map(|price| price.saturating_sub(paid));
        let wait = missing.map_or(self.least, |missing| missing.div_ceil(4));
        self.asked_at.store(paid.saturating_add(wait), SeqCst);
        if self.paid.load(SeqCst) < paid {
            // It began anew meanwhile.
            self.asked_at.store(self.least, SeqCst);
            return false;
        }
        missing == Some(0)
    }

    /// What was paid for is being settled.
    pub fn begin_anew(&self) {
        self.begin(self.least);
    }

    /// What was paid for was tried, and failed: it begins anew, and the price is not asked for until much more was paid.
    pub fn put_off(&self) {
        self.begin(self.least.saturating_mul(PUT_OFF));
    }

    fn begin(&self, asked_at: u64) {
        self.paid.store(0, SeqCst);
        self.asked_at.store(asked_at, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn never(_: u64) -> Option<u64> {
        panic!("asked for a price")
    }

    #[test]
    fn the_price_is_asked_for_once_in_a_while() {
        let rent = Rent::default();
        assert!(!rent.pay(LEAST - 1) && !rent.covers(never));
        assert!(rent.pay(1) && !rent.covers(|_| Some(LEAST + 4000)));
        // A quarter of what is missing.
        assert!(!rent.pay(999) && !rent.covers(never));
        assert!(rent.pay(1) && !rent.covers(|_| Some(LEAST + 1001)));
        assert!(rent.pay(1) && rent.covers(|_| Some(LEAST + 1001)));
        assert_eq!(rent.paid(), LEAST + 1001);
        // Not each request says then that somebody should look.
        let says = (0..10 * LEAST).filter(|_| rent.pay(1)).count();
        assert!(says == 10 && rent.covers(|_| Some(LEAST + 1001)));
        // Where it cannot be settled nobody looks for a while.
        assert!(!rent.covers(|_| None) && !rent.pay(LEAST - 1) && !rent.covers(never));
        assert!(rent.pay(1) && rent.covers(|_| Some(1)));
        rent.begin_anew();
        assert!(rent.paid() == 0 && !rent.pay(LEAST - 1) && !rent.covers(never));
    }

    /// Whoever pays while the price is being asked for may pass what is then said to be the next look.
    #[test]
    fn nobody_is_missed_who_pays_during_a_look() {
        let rent = Rent::default();
        assert!(rent.pay(LEAST));
        let slow = |_| {
            assert!(rent.pay(2 * LEAST));
            Some(2 * LEAST)
        };
        assert!(!rent.covers(slow));
        assert!((0..LEAST).any(|_| rent.pay(1)) && rent.covers(|_| Some(2 * LEAST)));
    }

    #[test]
    fn what_failed_is_not_tried_before_much_more_is_paid() {
        let rent = Rent::default();
        assert!(rent.pay(LEAST) && rent.covers(Some));
        rent.put_off();
        assert!(!rent.pay(PUT_OFF * LEAST - 1) && !rent.covers(never));
        assert!(rent.pay(1) && rent.covers(Some));
        rent.begin_anew();
        assert!(rent.pay(LEAST) && rent.covers(Some));
    }

    /// Whoever asked for the price then had it asked for again once as much was paid anew.
    #[test]
    fn what_begins_anew_during_a_look_is_not_put_off_by_it() {
        let rent = Rent::default();
        rent.pay(10 * LEAST);
        let begins = |paid| {
            rent.begin_anew();
            Some(paid)
        };
        assert!(!rent.covers(begins));
        assert!(rent.pay(LEAST) && rent.covers(Some));
    }
}
