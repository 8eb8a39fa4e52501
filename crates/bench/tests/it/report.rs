//! A whole run, and what it leaves behind.

use std::fs;

use learnedkv_bench::report::{Report, html};
use learnedkv_bench::run::PhaseResult;
use learnedkv_bench::{ErrorKind, suite};

use crate::tiny_plan;

#[test]
fn a_run_of_every_workload_leaves_a_report_and_no_store() {
    for threads in [1, 3] {
        let dir = tempfile::tempdir().unwrap();
        let list = "load,settle,A,B,C,D,E,F,absent,update,verify";
        let mut plan = tiny_plan(dir.path(), list, threads);
        plan.limits.quiet = false;
        let mut out = Vec::new();
        let report = suite::run(&plan, &mut out).unwrap();
        let out = String::from_utf8(out).unwrap();
        assert!(out.starts_with("btree-map: 500 keys (clustered:500) and up to "), "{out}");
        assert!(out.contains(" to insert, values of normal:60:20 bytes"), "{out}");
        let last = out.lines().last().unwrap();
        let path = last.strip_prefix("report: ").expect(last);
        assert!(out.contains(" reads checked, 0 wrong\n"), "{out}");
        assert!(!dir.path().join("store").exists(), "the store is still there");

        let json = fs::read_to_string(dir.path().join("out/report.json")).unwrap();
        let back: Report = serde_json::from_str(&json).unwrap();
        assert_eq!(back.phases.len(), report.phases.len());
        assert_eq!(back.phases[2].latencies.len(), 2, "A reads and updates");
        let page = fs::read_to_string(path).unwrap();
        check_page(&page);
        for phase in &report.phases {
            assert!(page.contains(&format!(">{}<", phase.name)), "{} is missing", phase.name);
        }
    }
}

#[test]
fn learnedkv_answers_every_workload_right() {
    let dir = tempfile::tempdir().unwrap();
    for (list, threads) in
        [("load,settle,A,B,C,D,E,F,absent,update,verify", 3), ("ingest,C,E,verify", 1)]
    {
        let mut plan = tiny_plan(dir.path(), list, threads);
        plan.engine = "learnedkv".to_string();
        let report = suite::run(&plan, &mut Vec::new()).unwrap();
        assert!(!report.engine_stats.text.is_empty());
    }
}

#[test]
fn a_kept_store_stays() {
    let dir = tempfile::tempdir().unwrap();
    let mut plan = tiny_plan(dir.path(), "load", 1);
    plan.keep = true;
    suite::run(&plan, &mut Vec::new()).unwrap();
    assert!(dir.path().join("store/db/btree-map.log").exists());
    let again = suite::run(&plan, &mut Vec::new()).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::Usage);
}

#[test]
fn a_rate_is_kept_and_time_limits_end_a_workload() {
    let dir = tempfile::tempdir().unwrap();
    let mut plan = tiny_plan(dir.path(), "load,C", 2);
    plan.limits.rate_per_second = Some(5_000.0);
    plan.limits.operations = 500;
    let c = suite::run(&plan, &mut Vec::new()).unwrap().phases.pop().unwrap();
    assert_eq!((c.operations, c.asked_operations, c.is_cut_short()), (500, 500, false));
    // Arrivals are random: the last of 500 is due after 0.1 s, give or take a twentieth.
    assert!(c.seconds >= 0.08, "500 operations at 5,000/s took {} s", c.seconds);
    assert_eq!(c.rate_per_second, Some(5_000.0));
    // Nothing is done before it is due; nobody keeps up with a rate that no processor has, nor if time is over.
    let share = |phase: &PhaseResult| phase.share_of_rate.unwrap();
    assert!(share(&c) > 0.0 && share(&c) <= 1.0, "{}", share(&c));
    plan.limits.rate_per_second = Some(1e9);
    for (operations, seconds) in [(500, 30.0), (u64::MAX, 0.2)] {
        (plan.limits.operations, plan.limits.seconds) = (operations, Some(seconds));
        let c = suite::run(&plan, &mut Vec::new()).unwrap().phases.pop().unwrap();
        assert!(share(&c) > 0.0 && share(&c) < 0.1, "{} of {} s", share(&c), c.seconds);
    }
    plan.limits.rate_per_second = None;
    plan.limits.operations = u64::MAX;
    plan.limits.seconds = Some(0.2);
    let c = suite::run(&plan, &mut Vec::new()).unwrap().phases.pop().unwrap();
    // That it ended at all is what is tested, and that it is told.
    assert!(c.operations > 0 && c.operations < u64::MAX);
    assert!(c.is_cut_short() && c.asked_operations == u64::MAX && c.share_of_rate.is_none());
}

#[test]
fn a_part_of_the_operations_is_done_where_the_list_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let plan = tiny_plan(dir.path(), "load,~C,A,E/20,multiget/32,batch/5000", 3);
    let phases = suite::run(&plan, &mut Vec::new()).unwrap().phases;
    let done: Vec<_> = phases.iter().map(|p| (p.name.as_str(), p.operations, p.warms_up)).collect();
    let expected = [
        ("load", 500, false),
        ("~C", 2000, true),
        ("A", 2000, false),
        ("E", 100, false),
        ("multiget", 62, false),
        ("batch", 1, false),
    ];
    assert_eq!(done, expected);
}

#[test]
fn hostile_names_and_a_failed_run_make_a_sound_page() {
    let dir = tempfile::tempdir().unwrap();
    let mut report = suite::run(&tiny_plan(dir.path(), "load,A", 1), &mut Vec::new()).unwrap();
    report.command = "<script>alert(1)</script> \"&' \u{1}".to_string();
    report.engine_stats.text = "a < b && c > d".to_string();
    report.phases[1].failures = 3;
    report.phases[1].failure_samples = vec!["key \"<x>\": expected this".to_string()];
    report.phases[1].timeline_ops_per_s = (0..240).map(|i| f64::from(i % 7) * 1e5).collect();
    let page = html::page(&report);
    check_page(&page);
    assert!(page.contains("WRONG") && page.contains("&lt;x&gt;") && !page.contains("<script"));
}

/// A page must be well formed, small, and need nothing from anywhere.
pub(crate) fn check_page(page: &str) {
    assert!(page.len() < 400 << 10, "{} bytes", page.len());
    for outside in ["http:", "https:", "//", "url(", "@import", "<script", "<link", "<img", "src="]
    {
        assert!(!page.contains(outside), "the page refers outside: {outside}");
    }
    let body = page.strip_prefix("<!DOCTYPE html>\n").expect("no document type");
    let mut open: Vec<&str> = Vec::new();
    let mut rest = body;
    while let Some(start) = rest.find('<') {
        assert!(!rest[..start].contains('>'), "a bare > in {:?}", &rest[..start]);
        let end = start + rest[start..].find('>').expect("a tag that does not end");
        let tag = &rest[start + 1..end];
        let name = tag.split([' ', '/']).find(|part| !part.is_empty()).unwrap();
        assert_eq!(tag.matches('"').count() % 2, 0, "quotes in <{tag}>");
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "closed out of turn");
        } else if !tag.ends_with('/') {
            open.push(name);
        }
        rest = &rest[end + 1..];
    }
    assert!(open.is_empty() && rest.trim().is_empty(), "left open: {open:?}");
    for (at, _) in page.match_indices('&') {
        let entity = &page[at..page[at..].find(';').map_or(at, |end| at + end)];
        assert!((2..8).contains(&entity.len()), "a bare & at byte {at}");
    }
}
