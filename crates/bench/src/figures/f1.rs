//! F1 and F10 (a): what has to stay in memory to find any key's block, from the real tables of a
//! settled store.

use ::learnedkv::{Compression, IndexKind};

use super::sheet::Target;
use super::store::{BLOCK_BYTES, Shape, Store, VALUE_BYTES};
use super::{Run, remove};
use crate::keys::{Generator, KeySet, KeySpec};
use crate::random::Rng;
use crate::values::{ValueSize, Values};
use crate::{Error, Result};

/// Integer keys: bits per 4,096 bytes.
const INTEGERS: Target = Target::AtMost { must: 32.0, aim: 24.0 };
/// Paths with values of 100 bytes: bits per 4,096 bytes.
const PATHS: Target = Target::AtMost { must: 96.0, aim: 80.0 };
/// F10 (a), bits per key; the aim is for blocks of 16 KiB.
const PER_KEY: Target = Target::AtMost { must: 8.0, aim: 3.0 };

/// The page that figures are given for.
const PAGE_BYTES: f64 = 4096.0;
/// Gets, and as many of absent keys, that check each store.
const CHECKS: u64 = 5000;

const SMALL: ValueSize = ValueSize::Fixed(100);
const LARGE: ValueSize = ValueSize::Fixed(VALUE_BYTES);
/// Sizes as in RocksDB's UDB workload (Cao et al., FAST 2020).
const DRAWN: ValueSize = ValueSize::Normal { mean: 126.7, deviation: 22.1 };

struct Case {
    name: &'static str,
    keys: KeySpec,
    sizes: Vec<(ValueSize, Option<Target>)>,
    /// In all shapes, or in the usual one alone.
    in_all_shapes: bool,
}

/// What a store told.
struct Told {
    per_page: f64,
    section_per_page: f64,
    section_per_stored_page: f64,
    per_block: f64,
    per_key: f64,
    stored_percent: f64,
}

pub(super) fn measure(run: &mut Run) -> Result<()> {
    run.sheet.head("F1: metadata bits per 4,096 bytes of keys and values");
    run.sheet.line(
        "From `stats()` of a store whose keys were all ingested. First the memory of the whole \
         index (heap, with each table's smallest and largest key and its handle), then the index \
         sections alone, encoded; and that for 4,096 bytes as they are stored, which is what the target \
         is for, of `exact` with blocks of 4,096 B. Bits a block is the section over the data blocks. \
         \"Stored\" is what the data blocks take, per cent of the keys and values in them. In the run with \
         lz4 half of each value's bytes compress.",
    );
    let names = [
        "keys, value bytes",
        "index",
        "block",
        "heap",
        "section",
        "by stored",
        "bits a block",
        "stored %",
        "must / aim",
        "stands",
    ];
    let (mut rows, mut per_key) = (Vec::new(), Vec::new());
    for case in cases(run) {
        if missing(&case.keys) {
            rows.push(skipped(case.name, names.len()));
            continue;
        }
        let keys = scaled(run, &case)?;
        for (size, target) in &case.sizes {
            let values = Values::new(*size, run.seed);
            let shapes = shapes().take(if case.in_all_shapes { usize::MAX } else { 1 });
            for shape in shapes {
                let told = tell(run, &keys, &shape.values(&values), shape)?;
                let exact = shape.index == IndexKind::Exact;
                let target = target.filter(|_| exact && shape.block_bytes == BLOCK_BYTES[0]);
                rows.push(vec![
                    format!("{} {}, {size}", show_thousands(keys.len()), case.name),
                    show_index(shape),
                    shape.block_bytes.to_string(),
                    format!("{:.1}", told.per_page),
                    format!("{:.1}", told.section_per_page),
                    format!("{:.1}", told.section_per_stored_page),
                    format!("{:.1}", told.per_block),
                    format!("{:.0}", told.stored_percent),
                    target.map_or(String::new(), |target| show_target(target, "")),
                    target
                        .map_or(String::new(), |target| target.judge(told.section_per_stored_page)),
                ]);
                let is_raw = exact && shape.compression == Compression::None;
                if is_raw && *size == LARGE && case.in_all_shapes {
                    per_key.push(key_row(case.name, shape.block_bytes, told.per_key));
                }
            }
        }
    }
    run.sheet.table(&names, &rows);
    run.sheet.head("F10 (a): metadata bits per key at 1,016-byte values, no settled filter");
    run.sheet.line("All memory that finds blocks (heap), index `exact`; must 8, aim 3 at 16 KiB.");
    run.sheet.table(&["keys", "block", "bits a key", "stands"], &per_key);
    Ok(())
}

/// A row of F10 (a).
fn key_row(name: &str, block_bytes: u64, bits: f64) -> Vec<String> {
    let cells = [name.to_string(), block_bytes.to_string(), format!("{bits:.2}")];
    cells.into_iter().chain([PER_KEY.judge(bits)]).collect()
}

fn show_target(target: Target, unit: &str) -> String {
    let (Target::AtMost { must, aim } | Target::AtLeast { must, aim }) = target;
    format!("{must}{unit} / {aim}{unit}")
}

fn show_index(shape: Shape) -> String {
    match shape.compression {
        Compression::None => shape.index.to_string(),
        how => format!("{}, {how}", shape.index),
    }
}

fn show_thousands(count: usize) -> String {
    format!("{} k", count / 1000)
}

fn skipped(name: &str, cells: usize) -> Vec<String> {
    let mut row = vec![format!("{name}: left out, no such file below --data")];
    row.resize(cells, String::new());
    row
}

fn cases(run: &Run) -> Vec<Case> {
    let generated = |generator, count, sizes: &[ValueSize]| Case {
        name: Generator::ALL.iter().find(|(_, g)| *g == generator).map_or("", |(name, _)| name),
        keys: KeySpec::Generated(generator, run.scale.of(count)),
        sizes: sizes.iter().map(|size| (*size, Some(INTEGERS))).collect(),
        in_all_shapes: true,
    };
    let usually = |generator, count, size| Case {
        in_all_shapes: false,
        ..generated(generator, count, &[size])
    };
    let file = |name: &'static str| Case {
        name,
        keys: KeySpec::Sosd(run.data.join(format!("{name}_1m_uint64"))),
        sizes: vec![(LARGE, Some(INTEGERS)), (SMALL, Some(INTEGERS))],
        in_all_shapes: true,
    };
    let more = Generator::ALL.iter().map(|(_, generator)| *generator);
    let more = more.filter(|generator| *generator != Generator::Uniform);
    let more = more.map(|generator| usually(generator, 5_000_000, SMALL));
    let cases = [
        generated(Generator::Uniform, 1_000_000, &[LARGE]),
        generated(Generator::Sequential, 1_000_000, &[LARGE]),
        generated(Generator::Lognormal, 1_000_000, &[LARGE]),
        generated(Generator::Segmented, 1_000_000, &[LARGE]),
        generated(Generator::Normal, 1_000_000, &[LARGE]),
        generated(Generator::Clustered, 1_000_000, &[LARGE]),
        usually(Generator::Uniform, 4_000_000, LARGE),
        generated(Generator::Uniform, 5_000_000, &[SMALL]),
        generated(Generator::Uniform, 4_000_000, &[DRAWN]),
        file("coast_hilbert"),
        file("coast_longlat"),
        Case {
            name: "paths",
            keys: KeySpec::Text(run.data.join("paths_500k.txt")),
            sizes: vec![(SMALL, Some(PATHS)), (LARGE, None)],
            in_all_shapes: true,
        },
    ];
    cases.into_iter().chain(more).collect()
}

fn missing(keys: &KeySpec) -> bool {
    matches!(keys, KeySpec::Sosd(path) | KeySpec::Text(path) if !path.exists())
}

/// The keys of a case; of a file as large a part of its beginning as the scale says.
fn scaled(run: &Run, case: &Case) -> Result<KeySet> {
    let all = case.keys.make(run.seed)?.set;
    Ok(match case.keys {
        KeySpec::Generated(..) => all,
        _ => {
            let count = run.scale.of(all.len() as u64);
            all.first(count as usize)
        }
    })
}

/// `exact` with every block size, then with lz4, the other kinds with the usual size. The absent keys that check a store bring
/// no filter into memory.
fn shapes() -> impl Iterator<Item = Shape> {
    let usual = Shape { attach_filters: false, ..Shape::default() };
    let exact = BLOCK_BYTES.map(|block_bytes| Shape { block_bytes, ..usual });
    let others = IndexKind::ALL.iter().filter(|kind| **kind != IndexKind::Exact);
    exact
        .into_iter()
        .chain([Shape { attach_filters: false, ..Shape::lz4() }])
        .chain(others.map(move |kind| Shape { index: *kind, ..usual }))
}

fn tell(run: &Run, keys: &KeySet, values: &Values, shape: Shape) -> Result<Told> {
    remove(&run.dir)?;
    let store = Store::open(&run.dir, run.scale, shape)?;
    store.ingest(keys, values)?;
    store.check_some(keys, values, |_| 1, CHECKS, &mut Rng::seeded(run.seed))?;
    let told = store.keyspace_stats()?;
    if told.filter_bytes > 0 {
        return Err(Error::runtime(format!("expected no filter in memory, found {told}")));
    }
    store.close()?;
    remove(&run.dir)?;
    let page = |bytes: u64| bytes as f64 * 8.0 * PAGE_BYTES / told.entry_bytes as f64;
    Ok(Told {
        per_page: page(told.metadata_bytes),
        section_per_page: page(told.index_bytes),
        section_per_stored_page: told.index_bytes as f64 * 8.0 * PAGE_BYTES
            / told.block_bytes as f64,
        per_block: told.index_bytes as f64 * 8.0 / told.blocks as f64,
        per_key: told.metadata_bits_per_entry(),
        stored_percent: told.block_bytes as f64 * 100.0 / told.entry_bytes as f64,
    })
}
