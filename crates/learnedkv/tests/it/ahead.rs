//! Steps of a sweep that are begun ahead of the one at the watermark.

use learnedkv::KeyspaceOptions;
use learnedkv::disk::sim::SimDisk;

use crate::workload::Setup;

fn key(number: u64) -> String {
    format!("key{:05}", number * 7919 % 100_000)
}

fn put(keyspace: &learnedkv::Keyspace, numbers: std::ops::Range<u64>, length: usize, fill: u8) {
    numbers.for_each(|number| keyspace.insert(key(number), vec![fill; length]).unwrap());
}

/// Two threads settle at once: what it comes to is that of one.
#[test]
fn steps_of_a_sweep_go_ahead_of_each_other() {
    let options =
        KeyspaceOptions::default().min_conversion_bytes(1 << 30).partition_bytes(64 << 10);
    let convert = |sweeps_ahead: bool, seed: u64| {
        let keyspace = options.clone().separate_at(60);
        let setup = Setup { memtable_bytes: 16 << 10, sweeps_ahead, keyspace, ..Setup::default() };
        let db = setup.open(&SimDisk::new(seed), seed).unwrap();
        let keyspace = db.keyspace("k", setup.keyspace.clone()).unwrap();
        for fill in 0..3 {
            put(&keyspace, 0..10_000, 100, fill);
            put(&keyspace, 0..3000, 50, fill + 100);
            keyspace.convert().unwrap();
        }
        db.wait_idle().unwrap();
        let expected = |n: u64| if n < 3000 { vec![102; 50] } else { vec![2; 100] };
        (0..10_000).for_each(|n| assert!(keyspace.get(key(n)).unwrap().unwrap() == expected(n)));
        assert_eq!(keyspace.iter().count(), 10_000);
        let stats = keyspace.stats().unwrap();
        (db.stats().steps_ahead, stats.settled_bytes, stats.partitions)
    };
    for seed in 0..3 {
        let (none, bytes, partitions) = convert(false, seed);
        let (ahead, other_bytes, other_partitions) = convert(true, seed);
        assert!(none == 0 && ahead >= 10, "{none} and {ahead} steps were begun ahead");
        let is_about = |of: u64, other: u64| (of * 9 / 10..of * 11 / 10).contains(&other);
        assert!(is_about(bytes, other_bytes), "{bytes}, {other_bytes} bytes");
        let most = partitions + partitions / 4;
        assert!(other_partitions <= most, "{partitions}, {other_partitions} partitions");
    }
}
