package config

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the generated document instead of comparing it")

const (
	documentPath  = "../../docs/reference/configuration.md"
	referencePath = "testdata/reference.yaml"
)

// TestDocument keeps docs/reference/configuration.md equal to the table. To update it: go test
// ./internal/config -run TestDocument -update.
func TestDocument(t *testing.T) {
	want := rendered(t)
	if *update {
		if err := os.WriteFile(documentPath, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(documentPath)
	if err != nil || string(got) != want {
		t.Errorf("the document differs from the table (%v); run: go test ./internal/config -run TestDocument -update", err)
	}
}

func rendered(t *testing.T) string {
	t.Helper()
	example, err := os.ReadFile(referencePath)
	if err != nil {
		t.Fatal(err)
	}
	var keys, flags, variables []setting
	for _, row := range settings(&loader{}) {
		switch {
		case row.key != "":
			keys = append(keys, row)
		case row.flag != "":
			flags = append(flags, row)
		default:
			variables = append(variables, row)
		}
	}
	var b strings.Builder
	b.WriteString(intro)
	b.WriteString("\n## The file\n\n| key | variable | values | default | meaning |\n|---|---|---|---|---|\n")
	for _, row := range keys {
		writeRow(&b, code(row.key), code(row.env), row.format.describe, fallback(row), row.meaning)
	}
	for _, l := range lists(&loader{}) {
		writeRow(&b, code(l.key), "", "list of "+l.of+"s", "", l.meaning)
	}
	for _, l := range lists(&loader{}) {
		b.WriteString(map[string]string{poolsKey: poolsText, inventoryKey: inventoryText, adoptableKey: adoptableText, primaryIPsKey: primaryIPsText, sharedKey: sharedText, addressPoolsKey: addressPoolsText, bgpPeersKey: bgpPeersText}[l.key])
		b.WriteString("\n| key | values | default | meaning |\n|---|---|---|---|\n")
		for _, row := range l.documented() {
			writeRow(&b, code(row.key), row.format.describe, fallback(row), row.meaning)
		}
	}
	b.WriteString("\n## Flags\n\n`--cloud-config` names the file. All other flags of the cloud controller manager keep upstream's meaning; `--external-cloud-volume-plugin` and `--node-sync-period` have no effect there either.\n")
	b.WriteString("\n| flag | values | default | meaning |\n|---|---|---|---|\n")
	for _, row := range flags {
		writeRow(&b, code(row.flag), row.format.describe, fallback(row), row.meaning)
	}
	b.WriteString("\n## Variables without a key\n\n| variable | values | default | meaning |\n|---|---|---|---|\n")
	for _, row := range variables {
		writeRow(&b, code(row.env), row.format.describe, fallback(row), row.meaning)
	}
	b.WriteString("\n## Variables without effect\n\nThe Hetzner cloud controller manager reads these; Underlay warns when they ask for something it does not do.\n\nIt warns too of every other variable that begins with `HCLOUD_` or `ROBOT_`, with the nearest name that it knows, if one is near, and never with the value. It starts nevertheless: a cluster that works must not lose its controllers over a variable that does nothing. Those by which Kubernetes tells a pod of Services, such as `HCLOUD_CSI_SERVICE_HOST`, are not meant.\n")
	b.WriteString("\n| variable | why |\n|---|---|\n")
	for _, v := range foreign() {
		why := v.why
		if v.quiet != nil {
			why += fmt.Sprintf("; no warning for `%v`", *v.quiet)
		}
		writeRow(&b, code(v.name), why)
	}
	fmt.Fprintf(&b, "\n## A complete file\n\n```yaml\n%s```\n", example)
	return b.String()
}

const intro = `<!-- Generated from the table in internal/config by "go test ./internal/config -run TestDocument -update". Do not edit. -->

# Configuration

Settings come from flags, the YAML file of ` + "`--cloud-config`" + ` and environment variables. A flag outranks the file, the file outranks the environment, and an empty variable counts as absent. The file is decoded strictly: unknown and repeated keys, aliases and further documents are refused.

A wrong configuration ends the program at once with one line for each mistake: where it stands, the value, what is wrong with it and what to do. A change of the file takes effect when the program is restarted; the token file alone is read again while it runs.
`

const poolsText = `
## Pools

Each item of ` + "`pools`" + ` has these keys. Pools of a family are used in their order: the first one that is active, whose selector matches the Node, and that has room. The families come in podCIDRs in the order in which they first appear in the list.

With pools in the file, ` + "`--cluster-cidr`" + ` makes none. It goes on saying what other programs take for the pods' addresses, and is compared: a prefix of it that no pool has a part of is an error, since podCIDRs taken from it would count as foreign; a pool that lies outside it is a warning. Without the flag nothing is compared, and nothing is missing.

How to [add, drain and remove a pool](../how-to/add-a-pool.md); what [node IPAM guarantees](../explanation/node-ipam.md).
`

const inventoryText = `
## Inventory

With provider ` + "`metal`" + ` there is no API that tells of machines, so a Node is described by its machine in ` + "`inventory`" + `, or where it has none there by what its kubelet reports. Its provider ID is ` + "`underlay://`" + ` and its name, unless its kubelet was started with another one. It is never declared absent: who gives a machine back deletes its Node.

With provider ` + "`hcloud`" + ` it has the dedicated servers of which Robot can't tell, or not enough: each needs its ` + "`number`" + `, and its Node's provider ID is ` + "`hrobot://`" + ` and that. Such a Node is never declared absent while its server stands in the list. Where Robot is asked, too, it is right in all that it says, the inventory adds the rest, and the Event ` + "`InventoryMismatch`" + ` tells where the two contradict each other. How [dedicated servers](../how-to/dedicated-servers.md) join.

Each item of ` + "`inventory`" + ` has these keys.
`

const adoptableText = `
## Adoptable load balancers

A Service takes over a load balancer that somebody else made only if both sides say so: the Service by its annotations ` + "`load-balancer.hetzner.cloud/name`" + ` and ` + "`underlay.dev/adopt`" + `, and whoever owns the project by labels of the load balancer or by an item of ` + "`loadBalancers.adoptable`" + `. How to [hand a load balancer over](../how-to/hand-over-a-load-balancer.md).

Each item of ` + "`loadBalancers.adoptable`" + ` has these keys.
`

const primaryIPsText = `
## Primary IPs

A Service has its load balancer created with a primary IP of the project only if both sides say so: the Service by its annotations ` + "`underlay.dev/primary-ipv4`" + ` and ` + "`underlay.dev/primary-ipv6`" + `, and whoever owns the project by labels of the primary IP or by an item of ` + "`loadBalancers.primaryIPs`" + `. How to [keep an address](../how-to/keep-an-address.md).

Each item of ` + "`loadBalancers.primaryIPs`" + ` has these keys.
`

const sharedText = `
## Shared load balancers

Services that set the same annotation ` + "`underlay.dev/shared`" + ` share one load balancer, if they are of one namespace or of the namespaces that an item of ` + "`loadBalancers.shared`" + ` lists with the name. A name that is listed means nothing in other namespaces: it is refused there. How to [share a load balancer](../how-to/share-a-load-balancer.md).

Each item of ` + "`loadBalancers.shared`" + ` has these keys.
`

const addressPoolsText = `
## Address pools

Services of class ` + "`underlay.dev/address`" + ` get an address of each family that they ask for from these pools, in their order, and a node holds it. An address belongs to one range: pools may not overlap each other, nor the ranges of pods and Services, nor the addresses of machines in the inventory and of routers. A pool whose addresses Services have can't be removed: the start is refused with the Services' names.

Each item of ` + "`addresses.pools`" + ` has these keys.
`

const bgpPeersText = `
## BGP peers

The agent on each node speaks BGP with the routers whose ` + "`nodeSelector`" + ` matches its Node, and announces the addresses of pools with ` + "`mover: bgp`" + ` while the node serves them.

Each item of ` + "`addresses.bgp.peers`" + ` has these keys.
`

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}

func fallback(row setting) string {
	if row.fallback == required {
		return required
	}
	return code(row.fallback)
}

func writeRow(b *strings.Builder, cells ...string) {
	fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | "))
}

// TestReferenceFile loads the file that users copy from: it must contain every key, and every
// default in it must be the true one.
func TestReferenceFile(t *testing.T) {
	content, err := os.ReadFile(referencePath)
	if err != nil {
		t.Fatal(err)
	}
	files := fakeFiles{"/etc/underlay/token": tokenText, "/etc/underlay/robot/user": "user", "/etc/underlay/robot/password": tokenText}
	_, warnings, err := Load(ipv4Only(), content, func(string) string { return "" }, files.read)
	if err != nil || len(warnings) > 0 {
		t.Errorf("Load: %v, warnings %v", err, warnings)
	}
	decoded := &loader{}
	rows := settings(decoded)
	decoded.rows, decoded.lists = rows, lists(decoded)
	decoded.loadFile(content)
	if len(decoded.problems) > 0 {
		t.Fatal(decoded.problems)
	}
	for _, row := range itemSettings() {
		_, name := cutLast(row.key)
		if !strings.Contains(string(content), " "+name+": ") {
			t.Errorf("no pool has %s", name)
		}
	}
	for _, row := range rows {
		value, has := decoded.values[row.key]
		_, name := cutLast(row.key)
		switch commented := strings.Contains(string(content), "# "+name+": "); {
		case row.key == "":
		case !has && !commented:
			t.Errorf("%s is missing", row.key)
		case has && row.fallback != "" && row.fallback != required && !slices.Equal(value.items, []string{row.fallback}):
			t.Errorf("%s is %v, the default is %s", row.key, value.items, row.fallback)
		}
	}
}

// itemSettings are those of the items of all lists, as in pools[].name.
func itemSettings() (rows []setting) {
	for _, l := range lists(&loader{}) {
		rows = append(rows, l.documented()...)
	}
	return rows
}

// TestTable checks the rows by themselves.
func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for _, row := range slices.Concat(settings(&loader{}), itemSettings()) {
		for _, name := range []string{row.flag, row.key, row.env} {
			if name != "" && seen[name] {
				t.Errorf("%s is in the table twice", name)
			}
			seen[name] = true
		}
		if row.meaning == "" || row.format.describe == "" {
			t.Errorf("%s is not explained", row.field())
		}
		if row.fallback != "" && row.fallback != required {
			if problems := row.format.read([]string{row.fallback}); len(problems) > 0 {
				t.Errorf("the default of %s: %v", row.field(), problems[0])
			}
		}
	}
	for _, v := range foreign() {
		if seen[v.name] {
			t.Errorf("%s both has an effect and has none", v.name)
		}
	}
}
