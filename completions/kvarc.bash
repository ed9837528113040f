# SPDX-License-Identifier: BSD-3-Clause
# Made by 'kvarc --completions bash'; do not edit.
_kvarc()
{
    local cur=${COMP_WORDS[COMP_CWORD]} verb=${COMP_WORDS[1]}
    local prev=${COMP_WORDS[COMP_CWORD-1]} words actions=

    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        mapfile -t COMPREPLY < <(compgen -W '--help --version pack unpack test list info cut append log compact train bench eval profiles weights repair keygen session store watch help' -- "$cur")
        return
    fi
    case $prev in
    --output|-o|--profile|--model|--scores|--kv-rules|--attach|--key-file|--passphrase-file|--plot|--measure|--link|--store|--index|--slot-folder|--have)
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        return ;;
    --rope|--tier|--max-error|--kv-rule|--axes|--raw|--layout|--parity|--state-version|--layers|--tokens|--track|--checkpoint|--label|--identity|--held-out|--generate|--seed|--first-token|--sequences|--prefix|--continue|--max-kl|--group|--repeat|--prefill|--namespace|--server|--slot|--digest|--budget|--keep-versions|--grace|--threads|-T|--memory|-M|--device)
        return ;;
    --level)
        mapfile -t COMPREPLY < <(compgen -W '0 1 2 3 4 5 6 7 8' -- "$cur")
        return ;;
    --arith)
        mapfile -t COMPREPLY < <(compgen -W 'w8a8 w8a15 w15a15 fp8' -- "$cur")
        return ;;
    --loop)
        mapfile -t COMPREPLY < <(compgen -W 'open closed' -- "$cur")
        return ;;
    --predict)
        mapfile -t COMPREPLY < <(compgen -W 'token top-1 top-4 top-16 embedding' -- "$cur")
        return ;;
    --token-ids)
        mapfile -t COMPREPLY < <(compgen -W 'stored model' -- "$cur")
        return ;;
    --salvage-tokens)
        mapfile -t COMPREPLY < <(compgen -W 'keep zero' -- "$cur")
        return ;;
    --to)
        mapfile -t COMPREPLY < <(compgen -W 'safetensors llama' -- "$cur")
        return ;;
    --keep)
        mapfile -t COMPREPLY < <(compgen -W 'last labels' -- "$cur")
        return ;;
    --dtype)
        mapfile -t COMPREPLY < <(compgen -W 'f32 f16 bf16' -- "$cur")
        return ;;
    --isa)
        mapfile -t COMPREPLY < <(compgen -W 'scalar avx2 avx512 neon' -- "$cur")
        return ;;
    esac
    case $verb in
    pack) words=' --output -o --stdout -c --level -0 -1 --profile --embed-profile --rope --model --arith --loop --predict --token-ids --tier --max-error --scores --kv-rule --kv-rules --axes --attach --raw --layout --opaque --as-cache --members --verify --streamable --parity --encrypt --key-file --passphrase-file --identity --max-kl --threads -T --memory -M --isa --device --force -f --keep -k --rm --json --quiet -q --verbose -v --help -h' ;;
    unpack) words=' --output -o --stdout -c --profile --model --predict --allow-lossy --attach --key-file --passphrase-file --salvage --salvage-tokens --to --state-version --layers --tokens --track --checkpoint --threads -T --memory -M --isa --device --force -f --recursive -r --keep -k --json --quiet -q --verbose -v --help -h' ;;
    test) words=' --profile --model --predict --key-file --passphrase-file --checkpoint --threads -T --memory -M --isa --device --recursive -r --json --quiet -q --verbose -v --help -h' ;;
    list) words=' --profile --key-file --passphrase-file --memory -M --recursive -r --json --quiet -q --verbose -v --help -h' ;;
    info) words=' --profile --key-file --passphrase-file --plot --identity --memory -M --force -f --recursive -r --json --quiet -q --verbose -v --help -h' ;;
    cut) words=' --output -o --stdout -c --level -0 -1 --profile --embed-profile --model --arith --loop --predict --allow-lossy --verify --streamable --parity --encrypt --decrypt --key-file --passphrase-file --to --state-version --layers --tokens --track --checkpoint --threads -T --memory -M --isa --force -f --json --quiet -q --verbose -v --help -h' ;;
    append) words=' --level -0 -1 --profile --embed-profile --rope --model --kv-rule --kv-rules --axes --attach --raw --layout --opaque --verify --parity --encrypt --key-file --passphrase-file --label --identity --threads -T --memory -M --isa --json --quiet -q --verbose -v --help -h' ;;
    log) words=' --profile --key-file --passphrase-file --plot --memory -M --force -f --json --quiet -q --verbose -v --help -h' ;;
    compact) words=' --output -o --stdout -c --level -0 -1 --profile --embed-profile --model --arith --loop --predict --allow-lossy --verify --streamable --parity --encrypt --decrypt --key-file --passphrase-file --checkpoint --keep --threads -T --memory -M --isa --force -f --json --quiet -q --verbose -v --help -h' ;;
    train) words=' --output -o --level -0 -1 --profile --rope --model --arith --loop --predict --allow-lossy --kv-rule --kv-rules --axes --raw --layout --key-file --passphrase-file --identity --held-out --measure --generate --seed --first-token --dtype --head-block --whole-layer --no-table --klt --group --no-stages --threads -T --memory -M --isa --force -f --json --quiet -q --verbose -v --help -h' ;;
    bench) words=' --level -0 -1 --profile --model --tier --allow-lossy --kv-rule --kv-rules --axes --raw --layout --key-file --passphrase-file --repeat --link --prefill --threads -T --memory -M --isa --device --json --quiet -q --verbose -v --help -h' ;;
    eval) words=' --profile --model --arith --tier --scores --key-file --passphrase-file --plot --dtype --sequences --prefix --continue --max-kl --threads -T --memory -M --isa --force -f --json --quiet -q --verbose -v --help -h' ;;
    profiles) words=' --model --key-file --passphrase-file --digest --memory -M --json --quiet -q --verbose -v --help -h' actions=' list install' ;;
    weights) words=' --json --quiet -q --verbose -v --help -h' actions=' list clear' ;;
    repair) words=' --output -o --key-file --passphrase-file --memory -M --force -f --json --quiet -q --verbose -v --help -h' ;;
    keygen) words=' --quiet -q --verbose -v --help -h' ;;
    session) words=' --output -o --level -0 -1 --profile --attach --opaque --verify --encrypt --decrypt --key-file --passphrase-file --label --identity --store --index --accept-weak-store --namespace --server --slot --slot-folder --exact --no-canary --have --threads -T --memory -M --force -f --json --quiet -q --verbose -v --help -h' actions=' save load check log list fork rm find send receive' ;;
    store) words=' --output -o --profile --key-file --passphrase-file --store --index --accept-weak-store --namespace --budget --keep-versions --grace --dry-run --no-repack --threads -T --memory -M --force -f --json --quiet -q --verbose -v --help -h' actions=' stat verify gc rebuild have export import' ;;
    watch) words=' --output -o --level -0 -1 --profile --verify --encrypt --key-file --passphrase-file --store --index --accept-weak-store --namespace --threads -T --memory -M --once --poll --rm --json --quiet -q --verbose -v --help -h' ;;
    help) words=' --help -h pack unpack test list info cut append log compact train bench eval profiles weights repair keygen session store watch help' ;;
    *) words= ;;
    esac
    if [[ $cur == -* || $verb == help ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
    elif ((COMP_CWORD == 2)) && [[ -n $actions ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$actions" -- "$cur")
    elif ((COMP_CWORD == 3)) && [[ $verb == session && $prev != find ]]; then
        # names are text of others, which compgen -W would expand
        while IFS= read -r words; do
            [[ $words != "$cur"* ]] || COMPREPLY+=("$words")
        done < <(kvarc session list 2>/dev/null | sed "s/.*  //")
    else
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
    fi
}
complete -o filenames -F _kvarc kvarc
