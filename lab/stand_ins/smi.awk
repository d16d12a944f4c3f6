# What nvidia-smi prints, from /run/lockstep-lab/machine/{machine,gpus} (the hardware), the loaded module and the library.
# Forms of drivers 580 and 595 after real samples; of 610 the text forms after a real sample, its XML inferred (both
# keys, as its text form prints both).

function pad(text, width) { return sprintf("%-" width "s", text) }

function fill(text,    start, end, key) {
    while ((start = index(text, "{")) && (end = index(text, "}"))) {
        key = substr(text, start + 1, end - start - 1)
        text = substr(text, 1, start - 1) value[key] substr(text, end + 1)
    }
    return text
}

function tabs(count,    out) { out = ""; while (count-- > 0) out = out "\t"; return out }

function load_machine(    line, cut) {
    while ((getline line < (machine "/machine")) > 0)
        if (cut = index(line, "=")) fact[substr(line, 1, cut - 1)] = substr(line, cut + 1)
    while ((getline line < (machine "/gpus")) > 0) {
        if (line ~ /^#/ || line == "") continue
        split(line, part, "\t")
        if (part[7] != "ok") continue # it fell off the bus: the ones behind it move up
        row[count] = line
        count++
    }
}

function select(number,    key, pci, low) {
    for (key in fact) value[key] = fact[key]
    split(row[number], part, "\t")
    value["slot"] = part[1]; value["minor"] = part[2]; value["serial"] = part[4]
    value["uuid"] = part[5]; value["vbios"] = part[6]; value["module"] = part[2] + 1
    split(part[3], pci, /[:.]/)
    value["domain"] = toupper(pci[1]); value["bus"] = toupper(pci[2]); value["device"] = toupper(pci[3])
    value["bus_id"] = "0000" toupper(pci[1] ":" pci[2] ":" pci[3]) "." pci[4]
    low = tolower(pci[2]); sub(/^0/, "", low)
    value["board_id"] = "0x" low "00"
    value["pdi"] = "0x" substr(value["uuid"], 5, 8) substr(value["uuid"], 29, 8)
    value["fabric_guid"] = fact["fabric_guids"] == "yes" ? value["pdi"] : "N/A"
    value["index"] = number; value["kmd"] = kmd; value["driver_version"] = kmd
    value["memory_used"] = held[value["minor"]] ? 512 : 0
    value["memory_free"] = value["memory"] - 742 - value["memory_used"]
    if (value["fabric_needs"] != "" && !running(value["fabric_needs"])) {
        value["fabric_state"] = "In Progress"; value["fabric_status"] = "N/A"
    }
}

# The fabric of a box with switches inside comes up with its fabric manager.
function running(service,    line, ok) {
    ok = (getline line < ("/run/" service ".version")) > 0
    close("/run/" service ".version")
    return ok && line == kmd
}

function wanted(number) {
    if (only == "") return 1
    return only == number || only == value["uuid"] || toupper(only) == value["bus_id"] || \
        toupper(only) == substr(value["bus_id"], 5) || only == value["serial"]
}

# Processes with a GPU device open: pid, minor number, name.
function load_processes(    command, line, pid, minor, name) {
    command = "ls -l /proc/[0-9]*/fd 2>/dev/null"
    while ((command | getline line) > 0) {
        if (line ~ /^\/proc\//) { split(line, part, "/"); pid = part[3]; continue }
        if (line !~ /-> \/dev\/nvidia[0-9]+$/) continue
        minor = line; sub(/.*\/dev\/nvidia/, "", minor)
        if ((pid, minor) in seen) continue
        seen[pid, minor] = 1
        if ((getline name < ("/proc/" pid "/comm")) <= 0) continue
        close("/proc/" pid "/comm")
        if (name ~ /^(nv-fabricmanage|nvidia-imex|nvidia-persiste)/) continue # no compute processes
        user_pid[users] = pid; user_minor[users] = minor; user_name[users] = name
        held[minor] = 1
        users++
    }
    close(command)
}

function print_version() {
    print "NVIDIA-SMI version  : " smi
    print "NVML version        : " two_parts(nvml)
    if (new) {
        print "DRIVER version      : Deprecated, see \"KMD version\" instead"
        print "CUDA version        : Deprecated, see \"CUDA UMD version\" instead"
        print "KMD version         : " kmd
        print "CUDA UMD version    : " cuda
    } else {
        print "DRIVER version      : " kmd
        print "CUDA Version        : " cuda
    }
}

function two_parts(version,    part) { split(version, part, "."); return part[1] "." part[2] }

function print_list(    i) {
    for (i = 0; i < count; i++) {
        select(i)
        if (wanted(i)) print "GPU " i ": " value["name"] " (UUID: " value["uuid"] ")"
    }
}

function load_form(    line, depth) {
    while ((getline line < "/usr/lib/nvidia/smi.form") > 0) {
        if (line ~ /^#/ || line == "") continue
        depth = match(line, /[^\t]/) - 1
        form_depth[lines] = depth
        fields_of_line = split(substr(line, depth + 1), part, "|")
        form_tag[lines] = part[1]; form_label[lines] = part[2]
        form_group[lines] = fields_of_line < 3
        form_xml[lines] = part[3]; form_text[lines] = fields_of_line > 3 ? part[4] : part[3]
        lines++
    }
}

function print_xml(    i) {
    print "<?xml version=\"1.0\" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM \"nvsmi_device_v@DTD@.dtd\">\n<nvidia_smi_log>"
    print "\t<timestamp>" strftime("%a %b %e %H:%M:%S %Y") "</timestamp>"
    print "\t<driver_version>" kmd "</driver_version>\n\t<cuda_version>" cuda "</cuda_version>"
    if (new) print "\t<kmd_version>" kmd "</kmd_version>\n\t<cuda_umd_version>" cuda "</cuda_umd_version>"
    print "\t<attached_gpus>" count "</attached_gpus>"
    for (i = 0; i < count; i++) {
        select(i)
        if (wanted(i)) print_xml_gpu()
    }
    print "</nvidia_smi_log>"
}

function print_xml_gpu(    i, depth, open) {
    print "\t<gpu id=\"" value["bus_id"] "\">"
    open = 0
    for (i = 0; i < lines; i++) {
        depth = form_depth[i]
        while (open > depth) { open--; print tabs(open + 2) "</" stack[open] ">" }
        if (form_group[i]) {
            print tabs(depth + 2) "<" form_tag[i] ">"
            stack[depth] = form_tag[i]; open = depth + 1
        } else
            print tabs(depth + 2) "<" form_tag[i] ">" fill(form_xml[i]) "</" form_tag[i] ">"
    }
    while (open > 0) { open--; print tabs(open + 2) "</" stack[open] ">" }
    print "\t\t<processes>"
    for (i = 0; i < users; i++) {
        if (user_minor[i] != value["minor"]) continue
        print "\t\t\t<process_info>\n\t\t\t\t<gpu_instance_id>N/A</gpu_instance_id>"
        print "\t\t\t\t<compute_instance_id>N/A</compute_instance_id>\n\t\t\t\t<pid>" user_pid[i] "</pid>"
        print "\t\t\t\t<type>C</type>\n\t\t\t\t<process_name>" user_name[i] "</process_name>"
        print "\t\t\t\t<used_memory>512 MiB</used_memory>\n\t\t\t</process_info>"
    }
    print "\t\t</processes>\n\t\t<accounted_processes>\n\t\t</accounted_processes>\n\t</gpu>\n"
}

function print_text(    i) {
    print "\n==============NVSMI LOG==============\n"
    print pad("Timestamp", 55) ": " strftime("%a %b %e %H:%M:%S %Y")
    if (new) {
        print pad("Driver Version", 55) ": " kmd " [Deprecated; will be removed in CUDA 14.0. Use KMD Version instead]"
        print pad("CUDA Version", 55) ": " cuda " [Deprecated; will be removed in CUDA 14.0. Use CUDA UMD Version instead]"
        print pad("KMD Version", 55) ": " kmd
        print pad("CUDA UMD Version", 55) ": " cuda
    } else {
        print pad("Driver Version", 55) ": " kmd
        print pad("CUDA Version", 55) ": " cuda
    }
    print "\n" pad("Attached GPUs", 55) ": " count
    for (i = 0; i < count; i++) {
        select(i)
        if (wanted(i)) print_text_gpu()
    }
}

function print_text_gpu(    i, indent, any) {
    print "GPU " value["bus_id"]
    for (i = 0; i < lines; i++) {
        indent = sprintf("%" (4 * (form_depth[i] + 1)) "s", "")
        if (form_label[i] == "") continue
        if (form_group[i]) print indent form_label[i]
        else print indent pad(form_label[i], 51 - 4 * form_depth[i]) ": " fill(form_text[i])
    }
    any = 0
    for (i = 0; i < users; i++) {
        if (user_minor[i] != value["minor"]) continue
        if (!any++) print "    Processes"
        print "        " pad("GPU instance ID", 47) ": N/A\n        " pad("Compute instance ID", 47) ": N/A"
        print "        " pad("Process ID", 47) ": " user_pid[i]
        print "            " pad("Type", 43) ": C\n            " pad("Name", 43) ": " user_name[i]
        print "            " pad("Used GPU Memory", 43) ": 512 MiB"
    }
    if (!any) print "    " pad("Processes", 51) ": None"
    print ""
}

function short(name) { return length(name) > 27 ? substr(name, 1, 24) "..." : name }

function index_of(minor,    i) {
    for (i = 0; i < count; i++) { split(row[i], part, "\t"); if (part[2] == minor) return i }
    return 0
}

function print_table(    i, any) {
    rule = "-----------------------------------------+------------------------+----------------------"
    wide = "-----------------------------------------------------------------------------------------"
    print strftime("%a %b %e %H:%M:%S %Y") "       \n+" wide "+"
    if (new) printf "| NVIDIA-SMI %-22s KMD Version: %-13s CUDA UMD Version: %-9s|\n", smi, kmd, cuda
    else printf "| NVIDIA-SMI %-22s Driver Version: %-14s CUDA Version: %-9s|\n", smi, kmd, cuda
    print "+" rule "+"
    print "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |"
    print "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |"
    print "|                                         |                        |               MIG M. |"
    print "|=========================================+========================+======================|"
    for (i = 0; i < count; i++) {
        select(i)
        if (!wanted(i)) continue
        printf "|%4d  %-27s    On  |   %16s Off | %20s |\n", i, short(value["name"]), value["bus_id"], "0"
        printf "| N/A   27C    P0%15dW / %4dW |%8dMiB / %6dMiB |%8s%13s |\n", \
            value["power_draw"], value["power_limit"], value["memory_used"], value["memory"], "0%", "Default"
        printf "| %39s | %22s | %20s |\n", "", "", "Disabled"
        print "+" rule "+"
    }
    print "\n+" wide "+\n| Processes:" sprintf("%79s", "|")
    print "|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |"
    print "|        ID   ID                                                               Usage      |"
    print "|=========================================================================================|"
    for (i = 0; i < users; i++) {
        any = 1
        printf "|%5d   N/A  N/A%16d      C   %-36s %9s |\n", index_of(user_minor[i]), user_pid[i], substr(user_name[i], 1, 36), "512MiB"
    }
    if (!any) print "|  No running processes found" sprintf("%62s", "|")
    print "+" wide "+"
}

# Fields of --query-gpu: name as the vendor spells it → key, unit.
function load_fields(    list, i, part) {
    list = "timestamp=now driver_version=kmd count=count name=name serial=serial uuid=uuid gpu_uuid=uuid gpu_name=name " \
        "gpu_serial=serial pci.bus_id=bus_id gpu_bus_id=bus_id pci.domain=x_domain pci.bus=x_bus pci.device=x_device " \
        "pci.device_id=x_device_id index=index minor_number=minor vbios_version=vbios inforom.img=inforom inforom.oem=c:2.1 " \
        "inforom.ecc=c:7.16 persistence_mode=c:Enabled addressing_mode=addressing display_active=c:Disabled " \
        "gpu_recovery_action=c:None pstate=c:P0 memory.total=memory:MiB memory.used=memory_used:MiB " \
        "memory.free=memory_free:MiB memory.reserved=c:742:MiB compute_mode=c:Default compute_cap=compute_cap " \
        "utilization.gpu=c:0:% utilization.memory=c:0:% ecc.mode.current=c:Enabled ecc.mode.pending=c:Enabled " \
        "ecc.errors.uncorrected.volatile.total=c:0 ecc.errors.corrected.volatile.total=c:0 " \
        "temperature.gpu=c:27 power.draw=power_draw:W power.limit=power_limit:W mig.mode.current=c:Disabled " \
        "mig.mode.pending=c:Disabled gsp.mode.current=c:Enabled gsp.mode.default=c:Enabled c2c.mode=c2c " \
        "fabric.state=fabric_state fabric.status=fabric_status fabric.cliqueId=clique fabric.clusterUuid=cluster_uuid " \
        "fabric.health.summary=fabric_health fabric.health.bandwidth=fabric_bandwidth " \
        "platform.chassis_serial_number=chassis_serial platform.slot_number=slot_number platform.tray_index=tray_index " \
        "platform.host_id=c:1 platform.peer_type=peer_type platform.module_id=module platform.gpu_fabric_guid=fabric_guid " \
        "clocks.current.sm=c:120:MHz clocks.current.memory=c:3996:MHz remapped_rows.pending=c:No remapped_rows.failure=c:No"
    if (two_parts(smi) + 0 >= 595) list = list " kmd_version=kmd"
    known = split(list, field_list, " ")
    for (i = 1; i <= known; i++) {
        part = index(field_list[i], "=")
        field_name[i] = substr(field_list[i], 1, part - 1)
        field_key[field_name[i]] = substr(field_list[i], part + 1)
    }
}

function field_value(name,    key, part, size, text, unit) {
    key = field_key[name]; unit = ""
    if (key == "now") return strftime("%Y/%m/%d %H:%M:%S.000")
    if (key == "count") return count
    if (key ~ /^x_/) return "0x" value[substr(key, 3)]
    size = split(key, part, ":")
    if (part[1] == "c") { text = part[2]; unit = part[3] } else { text = value[part[1]]; unit = part[2] }
    if (text == "N/A") return name ~ /^fabric/ ? "N/A" : "[N/A]"
    return unit == "" || !units ? text : text " " unit
}

function print_csv(    i, j, wantlist, n, line, unit, part) {
    load_fields()
    n = split(fields, wantlist, ",")
    for (j = 1; j <= n; j++) {
        gsub(/ /, "", wantlist[j])
        if (!(wantlist[j] in field_key)) {
            print "Field \"" wantlist[j] "\" is not a valid field to query.\n"
            exit 2
        }
    }
    if (header) {
        for (j = 1; j <= n; j++) {
            i = split(field_key[wantlist[j]], part, ":")
            unit = part[1] == "c" ? part[3] : part[2]
            line = line (j > 1 ? ", " : "") wantlist[j] (unit == "" ? "" : " [" unit "]")
        }
        print line
    }
    for (i = 0; i < count; i++) {
        select(i)
        if (!wanted(i)) continue
        line = ""
        for (j = 1; j <= n; j++) line = line (j > 1 ? ", " : "") field_value(wantlist[j])
        print line
    }
}

function print_apps(    i, j, n, wantlist, line, text) {
    n = split(fields, wantlist, ",")
    if (header) { gsub(/,/, ", ", fields); sub(/used_memory|used_gpu_memory/, "&  [MiB]", fields); sub(/  \[/, " [", fields); print fields }
    for (i = 0; i < users; i++) {
        for (j = 0; j < count; j++) { select(j); if (value["minor"] == user_minor[i]) break }
        line = ""
        for (j = 1; j <= n; j++) {
            if (wantlist[j] == "pid") text = user_pid[i]
            else if (wantlist[j] ~ /^(process_)?name$/) text = user_name[i]
            else if (wantlist[j] == "gpu_uuid") text = value["uuid"]
            else if (wantlist[j] == "gpu_bus_id") text = value["bus_id"]
            else text = units ? "512 MiB" : "512"
            line = line (j > 1 ? ", " : "") text
        }
        print line
    }
}

BEGIN {
    count = 0; users = 0; lines = 0
    new = two_parts(smi) + 0 >= 610
    load_machine()
    if (count == 0 && mode != "version" && mode != "help") { print "No devices were found"; exit 6 }
    if (mode == "q" || mode == "table" || mode == "apps") load_processes()
    if (mode == "version") print_version()
    else if (mode == "list") print_list()
    else if (mode == "table") print_table()
    else if (mode == "apps") print_apps()
    else if (mode == "csv") print_csv()
    else if (mode == "help") { load_fields(); for (i = 1; i <= known; i++) print "\"" field_name[i] "\"" }
    else { load_form(); if (format == "xml") print_xml(); else print_text() }
}
