//! A generation's filter: never wrong about what was added, as large as it says, no larger than it
//! may be.

use super::*;
use crate::format::checksum::mix;
use crate::sstable::generation::Generation;

fn roomy() -> Arc<TableContext> {
    context(1 << 20)
}

fn metadata_bytes(context: &TableContext) -> u64 {
    context.metrics.metadata_bytes.load(Relaxed)
}

#[test]
fn what_was_added_is_never_refused_and_others_nearly_always() {
    let context = roomy();
    let generation = Generation::new(&context, 2000);
    assert!(!generation.may_hold(mix(0)) && generation.size_bytes() == 0);
    // Room for 2,000 and 4,000; the third part is full when all are there.
    for number in 0..14_000 {
        assert!(generation.add_all(&[mix(number)]));
        assert!(generation.may_hold(mix(number)) && generation.may_hold(mix(number / 2)));
    }
    assert!((0..14_000).all(|number| generation.may_hold(mix(number))));
    let passed = (0..100_000).filter(|n| generation.may_hold(mix(n + (1 << 40)))).count();
    println!("{passed} of 100,000 keys that are not there, {} bytes", generation.size_bytes());
    assert!(passed < 12_000, "{passed}: one in 25 of each part that is full");
    assert_eq!(generation.size_bytes(), 14_000);
}

#[test]
fn keys_that_come_again_take_no_room() {
    let context = roomy();
    let generation = Generation::new(&context, 2000);
    for _ in 0..10 {
        assert!(generation.add_all(&(0..1900).map(mix).collect::<Vec<_>>()));
    }
    assert_eq!(generation.size_bytes(), 2000);
}

#[test]
fn its_memory_is_counted_and_given_back() {
    let context = roomy();
    let generation = Generation::new(&context, 2000);
    assert!(generation.add_all(&(0..5000).map(mix).collect::<Vec<_>>()));
    assert_eq!(metadata_bytes(&context), 6000);
    drop(generation);
    assert_eq!(metadata_bytes(&context), 0);
}

/// 6,000 bytes are three quarters of what metadata may take; the third part has no room then, nor
/// ever.
#[test]
fn without_room_it_takes_no_more_and_refuses_none_that_it_took() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
    let context = context_with(disk, 1 << 20, false, 8000);
    let generation = Generation::new(&context, 2000);
    let taken: Vec<u64> =
        (0..20_000).filter(|number| generation.add_all(&[mix(*number)])).collect();
    assert!((5000..8000).contains(&taken.len()), "{} taken", taken.len());
    assert!(taken.iter().all(|number| generation.may_hold(mix(*number))));
    assert_eq!((generation.size_bytes(), metadata_bytes(&context)), (6000, 6000));
    let none = Generation::new(&context, 2000);
    assert!(!none.add_all(&[1]) && none.size_bytes() == 0);
    drop((none, generation));
    assert_eq!(metadata_bytes(&context), 0);
}

#[test]
fn who_adds_at_once_loses_none() {
    let context = roomy();
    let generation = Generation::new(&context, 2000);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let generation = &generation;
            scope.spawn(move || {
                (0..5000).for_each(|i| assert!(generation.add_all(&[mix(i * 4 + thread)])))
            });
        }
    });
    assert!((0..20_000).all(|number| generation.may_hold(mix(number))));
}

/// It was sized by its first flush for ever: a tiny one made so many parts that of absent keys every third passed.
#[test]
fn a_generation_that_begins_small_lets_few_absent_keys_pass() {
    let context = roomy();
    let generation = Generation::new(&context, 1);
    let keys: Vec<u64> = (0..500_000).map(mix).collect();
    assert!(generation.has_room_for(7000) && !generation.has_room_for(keys.len()));
    let taken = keys.chunks(1000).filter(|keys| generation.add_all(keys)).count();
    assert!((7..9).contains(&taken), "{taken} thousand keys");
    assert!(!generation.has_room_for(1000));
    let passed = (0..100_000).filter(|n| generation.may_hold(mix(n + (1 << 40)))).count();
    println!("{passed} of 100,000");
    assert!(passed < 15_500, "{passed}: one in 25 of each part");
    // Who is told beforehand makes another of the right size.
    let next = Generation::new(&context, keys.len());
    assert!(next.has_room_for(keys.len()) && next.add_all(&keys));
    let passed = (0..100_000).filter(|n| next.may_hold(mix(n + (1 << 40)))).count();
    assert!(passed < 4_500, "{passed}");
}
