//! Processes that write and are killed.
#![allow(clippy::unwrap_used, reason = "these are tests, though not all in test functions")]

use crate::support::Place;

#[test]
fn p01_killed_writers_lose_nothing_with_any_engine() {
    // Fails if a kill takes back a write that returned, or leaves a database that does not open;
    // or if no process is killed so soon that it still makes or recovers its database.
    let place = Place::new();
    let text = String::from_utf8(place.ok(&["torture", "--kills", "18", "--json"])).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (total, engines) = lines.split_last().unwrap();
    assert_eq!(engines.len(), everhash_store::engines().len());
    assert!(engines.iter().all(|engine| engine["kills"] == 18));
    assert!(engines.iter().all(|engine| engine["writes"].as_u64().unwrap() > 100), "{text}");
    // Six databases of each, every one of them read in the end.
    assert!(engines.iter().all(|engine| engine["comparisons"] == 6), "{text}");
    assert_eq!(total["refused"], 0);
    for figure in ["kills", "writes", "comparisons", "killed_before_a_write"] {
        let sum: u64 = engines.iter().map(|engine| engine[figure].as_u64().unwrap()).sum();
        assert_eq!(total[figure], sum, "{figure}: {text}");
    }
    assert!(total["killed_before_a_write"].as_u64() < total["kills"].as_u64(), "{text}");
    assert_eq!(total["engine"], "all");
    assert!(total["killed_before_a_write"].as_u64() > Some(0), "{text}");
}

#[test]
fn p10_killed_writers_without_room_lose_nothing() {
    // Fails if a kill of a process that has just been refused room takes something back, if what
    // was refused is there, or if a database without room does not open.
    let place = Place::new();
    let one = ["torture", "--form", "variable", "--durability", "process", "--json"];
    let text = place.ok(&[&one[..], &["--kills", "8", "--capacity", "2000000"]].concat());
    let text = String::from_utf8(text).unwrap();
    let total: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert!(total["refused"].as_u64() > Some(0) && total["refused"] != total["writes"], "{text}");
}

#[test]
fn a_removal_that_is_refused_is_a_finding() {
    // Fails if a database without room may refuse what makes room: WALSH does, if told to collect
    // nothing.
    let place = Place::new();
    let told = "torture --engine walsh --set resize=0 --form variable --durability process \
                --kills 200 --capacity 2000000 --directory .";
    let run = place.run(&told.split_whitespace().collect::<Vec<_>>());
    run.fails(1, &["only removes, and was refused for want of room"]);
}

#[test]
fn a_writer_that_ends_by_itself_is_a_finding() {
    // Fails if the command counts a process that refused to work as one that was killed.
    let place = Place::new();
    // An empty database fits, and what is written there soon does not.
    let script = "ulimit -f 400; exec \"$0\" torture --engine reef --form variable \
                  --durability process --kills 200 --directory .";
    let mut command = std::process::Command::new("bash");
    command.args(["-c", script, crate::support::PROGRAM]).current_dir(place.directory());
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("full") && message.contains("ended by itself"), "{message}");
    // What was found is there to be looked at.
    let (_, kept) = message.rsplit_once("(kept in ").unwrap();
    assert!(place.path(kept.trim_end().trim_end_matches(')')).is_dir(), "{message}");
}

#[test]
fn databases_are_read_between_the_kills() {
    // Fails if a loss were looked for in the end only, when later writes may have covered it.
    let place = Place::new();
    let one = ["torture", "--engine", "reef", "--form", "8/8", "--durability", "process"];
    let kept = ["--kills", "4", "--record", "kept.toml"];
    let told = String::from_utf8(place.ok(&[&one[..], &kept].concat())).unwrap();
    assert!(told.starts_with("reef: 4 kills, ") && told.contains(", 2 comparisons: "), "{told}");
    // What shall be kept is what was said.
    let kept: toml::Table = String::from_utf8(place.read("kept.toml")).unwrap().parse().unwrap();
    let kept = &kept["reef"]["torture"];
    for (name, words) in [
        ("kills", " kills, "),
        ("early", " of them before a write, "),
        ("writes", " writes that returned, "),
        ("comparisons", " comparisons: "),
    ] {
        let figure = kept[name].as_integer().unwrap();
        assert!(told.contains(&format!(" {figure}{words}")), "{name}: {kept:?}, {told}");
    }
}
