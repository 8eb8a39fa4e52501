//! Small file systems of the machine's own.

use learnedkv_skips::skip;

use super::*;

/// A file system of its own, gone when dropped.
struct SmallDisk {
    dir: PathBuf,
    _parent: tempfile::TempDir,
}

impl SmallDisk {
    /// A tmpfs of so many MiB, if we may mount one.
    fn tmpfs(mebibytes: u64) -> Option<SmallDisk> {
        let size = format!("size={mebibytes}m");
        SmallDisk::mount(&["-t", "tmpfs", "-o", &size, "tmpfs"], tempfile::tempdir().unwrap())
    }

    /// An ext4 of so many MiB, if we may make and mount one. A twentieth of it is the superuser's: ours.
    fn ext4(mebibytes: u64) -> Option<SmallDisk> {
        let parent = tempfile::tempdir().unwrap();
        let image = parent.path().join("image");
        std::fs::File::create(&image).unwrap().set_len(mebibytes * MIB).unwrap();
        let made = Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image).output();
        if !made.as_ref().is_ok_and(|made| made.status.success()) {
            skip("mount", &format!("no ext4 can be made here: {made:?}"));
            return None;
        }
        SmallDisk::mount(&["-o", "loop", image.to_str().unwrap()], parent)
    }

    fn mount(args: &[&str], parent: tempfile::TempDir) -> Option<SmallDisk> {
        let dir = parent.path().join("small");
        std::fs::create_dir(&dir).unwrap();
        match Command::new("mount").args(args).arg(&dir).output() {
            Ok(done) if done.status.success() => Some(SmallDisk { dir, _parent: parent }),
            other => {
                skip("mount", &format!("`mount {args:?}` is not allowed here: {other:?}"));
                None
            }
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.dir).status();
    }
}

#[test]
fn a_small_real_disk_is_filled_emptied_and_filled_again() {
    for &store in Store::ALL {
        let Some(small) = SmallDisk::tmpfs(16) else { return };
        let path = small.dir.join("db");
        let db = builder(&path).open().unwrap();
        let keyspace = db.keyspace("k", options_of(store)).unwrap();
        let left = go_round(&db, &keyspace, 4, PATIENCE);
        drop((db, keyspace));
        let db = builder(&path).open().unwrap();
        check(&db.find("k").unwrap(), left);
    }
}

/// See [`a_disk_with_more_room_than_it_says_is_emptied`].
#[test]
fn a_real_disk_with_a_part_for_the_superuser_is_emptied() {
    for &store in Store::ALL {
        let Some(small) = SmallDisk::ext4(24) else { return };
        let db = builder(&small.dir.join("db")).open().unwrap();
        let keyspace = db.keyspace("k", options_of(store)).unwrap();
        for round in 0..2 {
            let (end, error) = fill(&keyspace, 0);
            assert_eq!(error.kind(), ErrorKind::DiskFull, "{round}: {error}");
            assert!(end > 5000, "{round}: {end}");
            goes_on(PATIENCE, || keyspace.clear());
            goes_on(PATIENCE, || keyspace.flush());
            goes_on(PATIENCE, || keyspace.convert());
            goes_on(PATIENCE, || db.wait_idle());
            // Puts are taken again within a second or so.
            goes_on(PATIENCE, || keyspace.insert("first", "put"));
            keyspace.remove("first").unwrap();
        }
    }
}

/// What it took is there: on the full disk, once it is opened there, and after what was removed has made room.
#[test]
fn a_real_disk_with_a_part_for_the_superuser_keeps_all_that_it_took() {
    for &store in Store::ALL {
        let Some(small) = SmallDisk::ext4(24) else { return };
        let path = small.dir.join("db");
        let opened = || {
            let db = builder(&path).open().unwrap();
            let keyspace = db.keyspace("k", options_of(store)).unwrap();
            (db, keyspace)
        };
        let (mut first, mut end) = (0, 0);
        let (mut db, mut keyspace) = opened();
        for round in 0..3 {
            let (reached, error) = fill(&keyspace, end);
            assert_eq!(error.kind(), ErrorKind::DiskFull, "{store:?} {round}: {error}");
            assert!(reached > end + 3000, "{store:?} {round}: {end} to {reached}");
            end = reached;
            check(&keyspace, first..end);
            drop((db, keyspace));
            (db, keyspace) = opened();
            check(&keyspace, first..end);
            let keep = first + (end - first) * 2 / 3;
            (first..keep).for_each(|number| goes_on(PATIENCE, || keyspace.remove(name(number))));
            first = keep;
            goes_on(PATIENCE, || keyspace.convert());
            goes_on(PATIENCE, || db.wait_idle());
            // Puts are taken again within a second or so.
            goes_on(PATIENCE, || keyspace.insert(name(end), [end as u8; 900]));
            end += 1;
            check(&keyspace, first..end);
        }
        drop((db, keyspace));
        check(&opened().1, first..end);
    }
}

const FILLED: &str = "LEARNEDKV_TEST_FILL_AND_DIE";
/// Which of all stores it is.
const FILLED_STORE: &str = "LEARNEDKV_TEST_FILL_STORE";

/// Not a test by itself: the process that dies on the full disk.
#[test]
fn dies_on_a_full_disk() {
    let Ok(path) = std::env::var(FILLED) else { return };
    let store = Store::ALL[std::env::var(FILLED_STORE).unwrap().parse::<usize>().unwrap()];
    let db = builder(Path::new(&path)).open().unwrap();
    let keyspace = db.keyspace("k", options_of(store)).unwrap();
    let (end, error) = fill(&keyspace, 0);
    assert_eq!(error.kind(), ErrorKind::DiskFull);
    // Removals until nothing at all finds room.
    let removed = (0..end).take_while(|number| keyspace.remove(name(*number)).is_ok()).count();
    // Others take what is left of the disk.
    let rest = Path::new(&path).with_file_name("rest");
    let _ = std::fs::write(rest, vec![0; 64 << 20]);
    println!("removed {removed} of {end} entries");
    std::process::abort();
}

#[test]
fn a_process_killed_on_a_full_disk_leaves_a_database_that_opens() {
    for store in 0..Store::ALL.len() {
        let small = [SmallDisk::tmpfs(16), SmallDisk::ext4(24)];
        small.into_iter().flatten().for_each(|small| killed_on(small, store));
    }
}

fn killed_on(small: SmallDisk, store: usize) {
    let path = small.dir.join("db");
    let died = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "space::real::dies_on_a_full_disk", "--nocapture"])
        .env(FILLED, &path)
        .env(FILLED_STORE, store.to_string())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&died.stdout).into_owned();
    let line =
        said.lines().find_map(|line| line.split("removed ").nth(1)).expect("it said how far");
    let numbers: Vec<usize> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
    assert!(!died.status.success());
    // Not a byte is free.
    let db = builder(&path).open().unwrap();
    let keyspace = db.find("k").unwrap();
    check(&keyspace, numbers[0]..numbers[1]);
    std::fs::remove_file(small.dir.join("rest")).unwrap();
    (0..numbers[1]).for_each(|number| goes_on(PATIENCE, || keyspace.remove(name(number))));
    goes_on(PATIENCE, || keyspace.convert().and_then(|()| db.wait_idle()));
    goes_on(PATIENCE, || keyspace.insert("x", "v"));
    assert_eq!(keyspace.iter().count(), 1);
}
