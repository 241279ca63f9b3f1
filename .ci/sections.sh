# Sections of a check: each prints its name, its output, and how long it took.

failed=()
summary=()

# Runs a command under a name; remembers whether it passed.
section() {
    local name=$1 start=$SECONDS status=0
    shift
    printf '\n=== %s: %s\n' "$name" "$*"
    "$@" || status=$?
    local took="$((SECONDS - start)) s"
    if [[ $status == 0 ]]; then
        summary+=("passed  $name ($took)")
    else
        summary+=("FAILED  $name ($took, status $status)")
        failed+=("$name")
    fi
    printf '=== %s\n' "${summary[-1]}"
}

# Adds the components that the checks need, where they are missing and there is a way to.
components() {
    cargo --version
    local component
    for component in rustfmt clippy; do
        cargo "${component/rustfmt/fmt}" --version || rustup component add "$component" || return
    done
}

# Prints what passed and what did not, and ends with that.
finish() {
    printf '\n'
    printf '%s\n' "${summary[@]}"
    printf 'in all %s s\n' "$SECONDS"
    if [[ ${#failed[@]} != 0 ]]; then
        exit 1
    fi
    printf 'all checks passed\n'
}
