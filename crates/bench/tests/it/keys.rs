//! Key sets: what is accepted, what is refused and with which words.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use learnedkv_bench::keys::KeySpec;
use learnedkv_bench::random::Rng;
use learnedkv_bench::sizes::show_key;

/// Compares `found` with the file `name` in `expected/`; `REWRITE=1` rewrites the file instead.
fn expect(name: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/expected").join(name);
    if std::env::var_os("REWRITE").is_some() {
        fs::write(&path, found).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(found, expected, "{name} differs; REWRITE=1 rewrites it if the new one is right");
}

fn sosd(keys: &[u64]) -> Vec<u8> {
    let count = (keys.len() as u64).to_le_bytes();
    count.into_iter().chain(keys.iter().flat_map(|key| key.to_le_bytes())).collect()
}

/// Files of every kind below `dir`.
fn prepare(dir: &Path) {
    fs::write(dir.join("good.sosd"), sosd(&[3, 5, 5, 9])).unwrap();
    fs::write(dir.join("unsorted.sosd"), sosd(&[3, 9, 5])).unwrap();
    fs::write(dir.join("empty.sosd"), sosd(&[])).unwrap();
    fs::write(dir.join("short.sosd"), [1, 2, 3]).unwrap();
    fs::write(dir.join("cut.sosd"), &sosd(&[1, 2, 3])[..30]).unwrap();
    fs::write(dir.join("huge.sosd"), [0xFF; 16]).unwrap();
    fs::write(dir.join("lines.txt"), b"pear\n\nfig\npear\n\xFF\xFE\nfig tree").unwrap();
    fs::write(dir.join("blank.txt"), "\n\n").unwrap();
    fs::create_dir_all(dir.join("tree/a/b")).unwrap();
    fs::create_dir_all(dir.join("hollow")).unwrap();
    fs::write(dir.join("tree/a/file"), "").unwrap();
    std::os::unix::fs::symlink(dir, dir.join("tree/loop")).unwrap();
}

#[test]
fn specs_and_their_errors() {
    let dir = tempfile::tempdir().unwrap();
    prepare(dir.path());
    let specs = [
        "uniform:4",
        "sequential:3",
        "segmented:1k",
        "bytes:10.45:1.4:1k",
        "bytes:24:0:7",
        "bytes:24:0",
        "bytes:24:0:0",
        "bytes:1:0:5",
        "bytes:24:30:5",
        "bytes:x:0:5",
        "bytes:4:0:4g",
        "uniform:0",
        "uniform:",
        "uniform:-5",
        "uniform:1.5m",
        "uniform:99999999999g",
        "uniform:5g",
        "uniform",
        "zebra:5",
        "",
        "sosd:",
        "sosd:$/good.sosd",
        "sosd:$/unsorted.sosd",
        "sosd:$/empty.sosd",
        "sosd:$/short.sosd",
        "sosd:$/cut.sosd",
        "sosd:$/huge.sosd",
        "sosd:$/missing.sosd",
        "sosd:$/tree",
        "text:$/lines.txt",
        "text:$/blank.txt",
        "text:$/missing.txt",
        "paths:$/tree",
        "paths:$/hollow",
        "paths:$/missing",
    ];
    let root = dir.path().to_str().unwrap();
    let mut out = String::new();
    for spec in specs {
        let made = spec.replace('$', root).parse::<KeySpec>().and_then(|spec| spec.make(7));
        let _ = writeln!(out, "> {spec}");
        match made {
            Ok(keys) => {
                let shown: Vec<String> = (0..keys.set.len().min(4))
                    .map(|i| show_key(keys.set.key(i).as_ref()))
                    .collect();
                let _ = writeln!(out, "{} keys: {}", keys.set.len(), shown.join(" "));
                for note in keys.notes {
                    let _ = writeln!(out, "note: {note}");
                }
            }
            Err(error) => {
                let _ = writeln!(out, "error {}: {error}", error.exit_code());
            }
        }
    }
    expect("keys.txt", &out.replace(root, "$"));
}

#[test]
fn a_set_that_grows_has_keys_beside_those_that_are_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("keys");
    fs::write(&text, "a\nb\nc\nd\ne\nf\ng\nh").unwrap();
    let text = format!("text:{}", text.display());
    let made = |spec: &str, most, reserve| {
        let keys = spec.parse::<KeySpec>().unwrap().make_to_grow(3, most, reserve).unwrap();
        (keys.loaded, keys.set.len())
    };
    for spec in ["uniform:100", "sequential:100", "bytes:20:3:100"] {
        assert_eq!(made(spec, None, 0), (100, 100), "{spec}");
        assert_eq!(made(spec, None, 30), (100, 130), "{spec}");
        assert_eq!(made(spec, Some(40), 30), (40, 70), "{spec}");
    }
    // A file's keys are what there is: some are held back, half at most.
    assert_eq!(made(&text, None, 3), (5, 8));
    assert_eq!(made(&text, Some(4), 3), (4, 7));
    assert_eq!(made(&text, Some(4), 100), (4, 8));
    let far = "uniform:100".parse::<KeySpec>().unwrap().make_to_grow(3, None, usize::MAX);
    assert!(far.unwrap_err().to_string().contains("ask for fewer"));
}

#[test]
fn absent_keys_are_absent_and_near() {
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("keys");
    fs::write(&text, b"a\na\0\na\0\0\nb\nzz").unwrap();
    let specs = ["uniform:1000", "sequential:1000", "segmented:1000", "clustered:1000"];
    let specs: Vec<String> =
        specs.map(String::from).into_iter().chain([format!("text:{}", text.display())]).collect();
    for spec in specs {
        let keys = spec.parse::<KeySpec>().unwrap().make(1).unwrap().set;
        let mut rng = Rng::seeded(1);
        let mut absent = Vec::new();
        for near in 0..keys.len() {
            keys.absent_near(near, &mut rng, &mut absent);
            assert_eq!(keys.rank(&absent), None, "{spec}: {}", show_key(&absent));
            assert_eq!(keys.rank(keys.key(near).as_ref()), Some(near), "{spec}");
        }
    }
}
