//! F2: read requests per get where nothing is cached, the store's counter against the kernel's.

use ::learnedkv::disk::real::Waiting;

use super::kernel::Counted;
use super::sheet::Target;
use super::store::{BLOCK_BYTES, Shape, Store, VALUE_BYTES, budget_bytes};
use super::{Run, remove};
use crate::engines::Reads;
use crate::keys::{Generator, KeySet};
use crate::random::Rng;
use crate::sizes::{show_bytes, show_count};
use crate::values::{ValueSize, Values};
use crate::{Error, Result};

const REQUESTS: Target = Target::AtMost { must: 1.05, aim: 1.01 };
/// Where a value stands apart from its key: the block of the key, and the value.
const REQUESTS_APART: Target = Target::AtMost { must: 2.05, aim: 2.01 };
/// A value above `inline_limit` (16 KiB by default), bytes.
const APART_BYTES: u32 = 24 << 10;
/// The store is at least so many times the memory budget.
const TIMES_BUDGET: u64 = 8;
const GETS: u64 = 100_000;
/// Direct reads are whole pages of this size.
const PAGE_BYTES: f64 = 4096.0;
/// Blocks start at multiples of this.
const BLOCK_ALIGNMENT_BYTES: f64 = 64.0;
/// How far the kernel's bytes may lie from those expected, as a share; and for few reads, of which each
/// takes a page more or less as its block happens to lie, so much over the root of their number.
const BYTES_TOLERANCE: f64 = 0.02;
const BYTES_SCATTER: f64 = 1.0;
/// How many read calls the process may have made beyond those of the store: for `/proc` itself.
const CALLS_TOLERANCE: u64 = 16;

/// What is got.
#[derive(Clone, Copy)]
struct Case {
    value_bytes: u32,
    block_bytes: u64,
    gets: u64,
    seed: u64,
}

pub(super) fn measure(run: &mut Run) -> Result<()> {
    let gets = run.scale.of(GETS);
    let stored = budget_bytes(run.scale) * TIMES_BUDGET;
    run.sheet.head("F2: read requests per get, nothing cached");
    run.sheet.line(&format!(
        "{} uniform gets of settled keys, {} of them and their values ({TIMES_BUDGET} times the budget), direct reads, \
         no block cache, no filter that misses bring into memory, one client. Must 1.05, aim 1.01; of values above \
         `inline_limit`, which stand apart from their keys, 2.05 and 2.01. The witness: the kernel counts as many \
         read calls as the store counts requests (within {CALLS_TOLERANCE}), and within {:.0} % \
         the bytes that so many reads at 64-byte-aligned places take in whole pages; where it does not, there is \
         no table but an error.",
        show_count(gets),
        show_bytes(stored),
        BYTES_TOLERANCE * 100.0,
    ));
    let names = [
        "gets of",
        "value",
        "block",
        "requests a get",
        "kernel's calls a get",
        "kernel's bytes / expected",
        "us a get",
        "stands",
    ];
    let cases = BLOCK_BYTES.map(|block_bytes| (VALUE_BYTES, block_bytes));
    let mut rows = Vec::new();
    for (value_bytes, block_bytes) in cases.into_iter().chain([(APART_BYTES, BLOCK_BYTES[0])]) {
        let shape = Shape {
            block_bytes,
            reads: Reads::Direct,
            block_cache: false,
            // Loading one is no request of a get, but a call that the kernel counts.
            attach_filters: false,
            // Of what goes through a ring the kernel counts no calls.
            waiting: Waiting::Asleep,
            ..Shape::default()
        };
        let count = stored / (u64::from(value_bytes) + 8) + 1;
        let keys = Generator::Uniform.generate(count as usize, run.seed);
        let values = Values::new(ValueSize::Fixed(value_bytes), run.seed);
        let store = Store::open(&run.dir, run.scale, shape)?;
        store.ingest(&keys, &values)?;
        let case = Case { value_bytes, block_bytes, gets, seed: run.seed };
        for present in [true, false] {
            rows.push(gets_of(present, &store, &keys, &values, case)?);
        }
        store.close()?;
        remove(&run.dir)?;
    }
    run.sheet.table(&names, &rows);
    Ok(())
}

fn gets_of(
    present: bool,
    store: &Store,
    keys: &KeySet,
    values: &Values,
    case: Case,
) -> Result<Vec<String>> {
    let mut rng = Rng::seeded(case.seed);
    let (mut scratch, mut absent) = (Vec::new(), Vec::new());
    let (stats, kernel) = (store.stats(), Counted::now());
    let clock = std::time::Instant::now();
    for _ in 0..case.gets {
        let rank = rng.below(keys.len() as u64) as usize;
        if present {
            store.check(keys.key(rank).as_ref(), values, 1, &mut scratch)?;
        } else {
            keys.absent_near(rank, &mut rng, &mut absent);
            store.check_absent(&absent)?;
        }
    }
    let us = clock.elapsed().as_secs_f64() * 1e6 / case.gets as f64;
    let kernel = Counted::now().since(kernel);
    let after = store.stats();
    let requests = after.get_requests - stats.get_requests;
    let asked_bytes =
        after.read_bytes - stats.read_bytes + after.value_read_bytes - stats.value_read_bytes;
    if after.index_fallbacks != stats.index_fallbacks {
        return Err(Error::runtime("an index named blocks that do not hold their keys"));
    }
    let per_get = requests as f64 / case.gets as f64;
    let bytes = witnessed(requests, asked_bytes, kernel)?;
    let target = match (present, case.value_bytes == APART_BYTES) {
        (false, _) => "none set".to_string(),
        (true, false) => REQUESTS.judge(per_get),
        (true, true) => REQUESTS_APART.judge(per_get),
    };
    Ok(vec![
        if present { "present keys" } else { "absent keys" }.to_string(),
        case.value_bytes.to_string(),
        case.block_bytes.to_string(),
        format!("{per_get:.4}"),
        format!("{:.4}", kernel.read_calls as f64 / case.gets as f64),
        format!("{bytes:.4}"),
        format!("{us:.1}"),
        target,
    ])
}

/// The kernel's bytes over those expected.
///
/// # Errors
/// If the kernel counted other reads than the store: then neither count is a figure.
fn witnessed(requests: u64, asked_bytes: u64, kernel: Counted) -> Result<f64> {
    // A read of `n` bytes at a random multiple of 64 touches (n - 64) / 4096 + 1 pages on average.
    let pages_bytes = asked_bytes as f64 + requests as f64 * (PAGE_BYTES - BLOCK_ALIGNMENT_BYTES);
    let bytes = kernel.read_bytes as f64 / pages_bytes.max(1.0);
    let tolerance = BYTES_TOLERANCE.max(BYTES_SCATTER / (requests.max(1) as f64).sqrt());
    let agrees =
        (bytes - 1.0).abs() <= tolerance && kernel.read_calls.abs_diff(requests) <= CALLS_TOLERANCE;
    if agrees {
        return Ok(bytes);
    }
    Err(Error::runtime(format!(
        "F2: the kernel disagrees: the store counted {requests} read requests of {asked_bytes} bytes, so \
         {pages_bytes:.0} in whole pages; expected as many calls (within {CALLS_TOLERANCE}) and bytes (within \
         {:.1} %), found {} and {}. Has the file system of --dir direct reads?",
        tolerance * 100.0,
        kernel.read_calls,
        kernel.read_bytes
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_disagrees_is_an_error() {
        let (requests, asked) = (10_000, 10_000 * 4064);
        let expected = asked + requests * 4032;
        let of =
            |read_calls, read_bytes| witnessed(requests, asked, Counted { read_calls, read_bytes });
        assert_eq!(of(10_002, expected).unwrap(), 1.0);
        assert!(of(10_000, expected * 101 / 100).is_ok());
        // Reads that the store did not count, reads it made up, and reads from the system's cache.
        for (calls, bytes) in
            [(10_100, expected), (9_000, expected), (10_000, expected / 2), (10_000, 0)]
        {
            let error = of(calls, bytes).unwrap_err().to_string();
            assert!(error.starts_with("F2: the kernel disagrees"), "{error}");
        }
        // Of few reads the scatter is larger.
        assert!(
            witnessed(400, 400 * 4064, Counted { read_calls: 400, read_bytes: 3_335_000 }).is_ok()
        );
    }
}
