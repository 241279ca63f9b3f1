//! Runs the driver on every store, with few pairs.

use std::process::Command;

#[test]
fn every_store_is_measured_to_the_end_and_checked() {
    // Fails if a store's adapter is wrong, a task ends early, or an answer is not the expected one.
    let folder = tempfile::tempdir().expect("a folder");
    let json = folder.path().join("figures.json");
    let arguments = "run --items 2000 --rounds 1 --window-ms 20 --idle-s 0 --threads 1,2 \
                     --durability process,batch,immediate";
    for shape in ["16/100", "8/8", "16/20000"] {
        let ended = Command::new(env!("CARGO_BIN_EXE_everhash-compare"))
            .args(arguments.split_whitespace())
            .args(["--shape", shape, "--folder"])
            .arg(folder.path())
            .arg("--json")
            .arg(&json)
            .output()
            .expect("the driver runs");
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        let text = std::fs::read_to_string(&json).expect("figures");
        let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let columns = report["columns"].as_array().expect("columns");
        assert!(columns.len() >= 14, "{}", columns.len());
        for column in columns {
            assert_eq!(column["failures"], serde_json::json!([]), "{shape}: {column}");
            let rows = column["rows"].as_array().expect("rows");
            let lost = rows.iter().find(|row| row["what"] == "lost when killed, newest");
            // These keep writes in the memory of the process. All others promise that a killed
            // process loses nothing, and the driver has to see that they keep the promise.
            let loses = ["parity-db", "redb"];
            if let Some(lost) = lost
                && loses.iter().all(|store| column["store"] != *store)
            {
                assert_eq!(lost["values"][0], 0.0, "{column}");
            }
        }
    }
}

#[test]
fn a_store_that_is_not_there_is_refused() {
    // Fails if a misspelt name measured nothing and said nothing.
    let ended = Command::new(env!("CARGO_BIN_EXE_everhash-compare"))
        .args(["run", "--stores", "nobody"])
        .output()
        .expect("the driver runs");
    let text = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(!ended.status.success() && text.contains("there are reef, "), "{text}");
}
