package hcloudsim_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/hcloudsim/robotsim"
)

var update = flag.Bool("update", false, "write the generated document instead of comparing it")

const documentPath = "../docs/reference/hcloud-sim.md"

const documentIntro = `<!-- Generated from the tables in hcloudsim by "go test ./hcloudsim -run TestDocument -update". Do not edit. -->

# What hcloud-sim simulates

Every operation below ` + "`/v1`" + ` that ` + "`hcloud-sim`" + ` supports. Others return 404, as the real API does for unknown paths; of DNS zones and storage boxes there are only empty lists. See also [How to test against a simulated Hetzner Cloud](../how-to/hcloud-sim.md).

Requests are validated by the API's rules, and rejected with its codes. *Validated* names the reference of the conformance test for requests and responses: Hetzner's OpenAPI description, hcloud-go, or both.
`

// TestDocument keeps the page equal to the tables. To update it: go test ./hcloudsim -run
// TestDocument -update.
func TestDocument(t *testing.T) {
	want := document()
	if *update {
		if err := os.WriteFile(documentPath, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(documentPath)
	if err != nil || string(got) != want {
		t.Errorf("the document differs from the tables (%v); run: go test ./hcloudsim -run TestDocument -update", err)
	}
}

func document() string {
	groups := map[string][]string{}
	for _, op := range hcloudsim.Operations() {
		name := strings.Split(op.Path, "/")[1]
		validated := "description, hcloud-go"
		switch {
		case !op.Described:
			validated = "hcloud-go"
		case strings.Contains(op.Path, "{action_id}"), name == "datacenters": // deprecated in hcloud-go
			validated = "description"
		}
		groups[name] = append(groups[name], fmt.Sprintf("| `%s %s` | yes | %s |\n", op.Method, op.Path, validated))
	}
	var out strings.Builder
	out.WriteString(documentIntro)
	for _, name := range []string{"servers", "networks", "load_balancers", "primary_ips", "floating_ips", "certificates", "volumes", "firewalls", "placement_groups", "ssh_keys", "images", "isos", "locations", "datacenters", "server_types", "load_balancer_types", "pricing", "zones", "storage_boxes", "actions"} {
		title := strings.NewReplacer("_ips", " IPs", "_", " ", "isos", "ISOs").Replace(name)
		fmt.Fprintf(&out, "\n## %s%s\n\n| operation | simulated | validated |\n|---|---|---|\n", strings.ToUpper(title[:1]), title[1:])
		for _, row := range groups[name] {
			out.WriteString(row)
		}
		delete(groups, name)
	}
	if len(groups) > 0 {
		fmt.Fprintf(&out, "\nWithout a section: %v\n", groups) // fails the test that compares it
	}
	out.WriteString(robotSection())
	return out.String()
}

const robotIntro = `
## Robot web service

Every operation that ` + "`hcloud-sim`" + ` supports at ` + "`--robot-listen`" + `, with its quota and its documented errors. Each can also return 401 ` + "`UNAUTHORIZED`" + `, 403 ` + "`RATE_LIMIT_EXCEEDED`" + `, and 503 in a maintenance. Errors of the service itself or of the account (%s) occur only as injected faults. Quotas and errors are those of the [documentation](https://robot.hetzner.com/doc/webservice/en.html); a test causes each error, and the client library ` + "`github.com/syself/hrobot-go`" + ` parses the responses.

Cancellations of servers, boot configurations, single addresses, subnets, reverse DNS, traffic, SSH keys, orders, storage boxes, firewalls and Wake on LAN are not simulated, and neither are responses in YAML.

| operation | requests per hour | errors |
|---|---|---|
`

func robotSection() string {
	quoted := func(codes []string) string {
		if len(codes) == 0 {
			return ""
		}
		return "`" + strings.Join(codes, "`, `") + "`"
	}
	var out strings.Builder
	fmt.Fprintf(&out, robotIntro, quoted(robotsim.Unreachable()))
	for _, op := range robotsim.Operations() {
		fmt.Fprintf(&out, "| `%s` | %d | %s |\n", op.Name(), op.Quota, quoted(op.Errors))
	}
	return out.String()
}

func TestDocumentHasASectionForEverything(t *testing.T) {
	if strings.Contains(document(), "Without a section") {
		t.Error("an operation has no section in the document")
	}
}
