//! Every engine there is, whether or not this build has it, and how it is tuned.

/// What kind of store an engine is: who is compared with whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One of this workspace's.
    Ours,
    /// The LearnedKV paper's baseline in our code: what the learned tier gives is measured over it.
    PaperBaseline,
    /// A rival that is a log-structured merge tree.
    LsmRival,
    /// A rival that is a B-tree.
    BTreeRival,
    /// No store at all: what measuring costs.
    Floor,
}

/// An engine's name, whether or not this build has it.
#[derive(Debug, Clone, Copy)]
pub struct Name {
    /// On the command line.
    pub name: &'static str,
    /// The engine that it is but for one setting of its own, and whose options of a case it has; else its own name.
    pub base: &'static str,
    /// What it is.
    pub kind: Kind,
    /// The cargo feature it is built with; empty for what is always there.
    pub feature: &'static str,
    /// Whether it can read around the operating system's cache.
    pub direct: bool,
    /// How it can compress blocks.
    pub compressions: &'static [&'static str],
    /// Whether it collects the garbage of values that it keeps apart, and can be told how much to let lie.
    pub collects: bool,
    /// How it is tuned, in a sentence.
    pub tuned: &'static str,
}

/// What an engine has that compresses by all that this program can ask for.
const ALL_COMPRESSIONS: &[&str] = &["none", "lz4", "zstd"];

/// The name of the LearnedKV paper's baseline in our code.
pub const BASELINE: &str = "baseline";
/// The name of the engine that it is held against.
pub const BLOBDB: &str = "blobdb";

/// Every engine there is.
pub const NAMES: &[Name] = &[
    Name {
        name: "learnedkv",
        base: "learnedkv",
        kind: Kind::Ours,
        feature: "",
        direct: true,
        compressions: ALL_COMPRESSIONS,
        collects: true,
        tuned: "defaults (the tiered store); the budget covers memtables, cache and metadata",
    },
    Name {
        name: "learnedkv-lsm",
        base: "learnedkv-lsm",
        kind: Kind::Ours,
        feature: "",
        direct: true,
        compressions: ALL_COMPRESSIONS,
        collects: true,
        tuned: "the same with store=lsm",
    },
    Name {
        name: BASELINE,
        base: BASELINE,
        kind: Kind::PaperBaseline,
        feature: "",
        direct: true,
        compressions: ALL_COMPRESSIONS,
        collects: true,
        tuned: "the LearnedKV paper's in our code: levels with fence pointers and Bloom filters of 10 \
                bits a key, values from 512 bytes on kept apart for good and collected, no settled \
                run; reads by calls, never from maps",
    },
    Name {
        name: "btree-map",
        base: "btree-map",
        kind: Kind::Floor,
        feature: "",
        direct: false,
        compressions: &["none"],
        collects: false,
        tuned: "a BTreeMap in memory and a log: the floor, and no store",
    },
    Name {
        name: "fjall",
        base: "fjall",
        kind: Kind::LsmRival,
        feature: "fjall",
        direct: false,
        compressions: &["none", "lz4"],
        collects: false,
        tuned: "defaults (its Bloom filters) but for the blocks asked for; cache of the budget less two memtables",
    },
    Name {
        name: "fjall-separated",
        base: "fjall-separated",
        kind: Kind::LsmRival,
        feature: "fjall",
        direct: false,
        compressions: &["none", "lz4"],
        collects: true,
        tuned: "the same with values from 512 bytes on in blob files, collected as its defaults say",
    },
    Name {
        name: "lmdb",
        base: "lmdb",
        kind: Kind::BTreeRival,
        feature: "lmdb",
        direct: false,
        compressions: &["none"],
        collects: false,
        tuned: "a transaction per write, MDB_NOSYNC where buffered, MDB_NORDAHEAD where data is \
                beyond memory (the suite cold); a read transaction \
                for each read, reset and renewed (mdb_txn_reset, mdb_txn_renew); its cache is the operating system's, which no budget bounds but a cgroup's",
    },
    Name {
        name: "lmdb-write-map",
        base: "lmdb",
        kind: Kind::BTreeRival,
        feature: "lmdb",
        direct: false,
        compressions: &["none"],
        collects: false,
        tuned: "the same with MDB_WRITEMAP, \"slightly faster for DBs that fit entirely in RAM\" (lmdb.h): commits write \
                into the map, where a stray pointer of the program's may write too",
    },
    Name {
        name: "redb",
        base: "redb",
        kind: Kind::BTreeRival,
        feature: "redb",
        direct: false,
        compressions: &["none"],
        collects: false,
        tuned: "a transaction per write; cache of the budget; buffered is Durability::None, which \
                keeps less than asked for: nothing after the process dies",
    },
    Name {
        name: "rocksdb",
        base: "rocksdb",
        kind: Kind::LsmRival,
        feature: "rocksdb",
        direct: true,
        compressions: ALL_COMPRESSIONS,
        collects: false,
        tuned: "Bloom filters of 10 bits a key over whole keys, a HyperClock cache of the budget less \
                two memtables, background jobs as many as cores and three at least, format_version 6, \
                log files used again where synced; MultiGet is one call whose reads come one after another (the library has no \
                asynchronous ones); reads by calls where mapped ones are asked for; not as its wiki: index and filters outside the cache and its budget, and blocks as \
                asked for (the wiki has 16 KiB)",
    },
    Name {
        name: "rocksdb-mapped",
        base: "rocksdb",
        kind: Kind::LsmRival,
        feature: "rocksdb",
        direct: false,
        compressions: ALL_COMPRESSIONS,
        collects: false,
        tuned: "the same with allow_mmap_reads=true: tables are read where the system holds them, past the cache",
    },
    Name {
        name: BLOBDB,
        base: BLOBDB,
        kind: Kind::LsmRival,
        feature: "rocksdb",
        direct: true,
        compressions: ALL_COMPRESSIONS,
        collects: true,
        tuned: "the same with values from 512 bytes on in blob files, collected as its defaults \
                say, and blobs in the same cache",
    },
];

/// What is known of the engine called `name`.
#[must_use]
pub fn known(name: &str) -> Option<&'static Name> {
    NAMES.iter().find(|known| known.name == name)
}
