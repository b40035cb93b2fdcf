package kubeadm

import (
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/routes"
)

const deploy = "../../../deploy"

func read(t *testing.T, elements ...string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(append([]string{deploy}, elements...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// cluster contains the settings of init.yaml that Underlay needs too. The kinds themselves are
// decoded in the module with kubeadm's code.
type cluster struct {
	ControlPlaneEndpoint string
	Networking           struct{ PodSubnet, ServiceSubnet string }
	NodePortAddresses    []string
}

// clusterOf decodes every document of an init.yaml into one value, each adding its fields.
func clusterOf(t *testing.T, folder string) (c cluster) {
	t.Helper()
	for document := range strings.SplitSeq(read(t, folder, "init.yaml"), "\n---\n") {
		if err := yaml.Unmarshal([]byte(document), &c); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// taken are the ranges of pods and Services.
func (c cluster) taken() (ranges []netip.Prefix) {
	for text := range strings.SplitSeq(c.Networking.PodSubnet+","+c.Networking.ServiceSubnet, ",") {
		ranges = append(ranges, netip.MustParsePrefix(text))
	}
	return ranges
}

// argument returns an argument of the kubelet in an init.yaml or join.yaml.
func argument(t *testing.T, content, name string) string {
	t.Helper()
	found := regexp.MustCompile(`- name: ` + name + `\s+value: (\S+)\n`).FindStringSubmatch(content)
	if found == nil {
		t.Fatalf("no --%s", name)
	}
	return found[1]
}

// values are the chart's values.
type values struct {
	ClusterCIDR, ServiceCIDR, APIServer string
	CCM                                 struct{ Replicas int }
	Config                              map[string]any
}

// settings are the values as the chart passes them to underlay-ccm.
func settings(t *testing.T, v values) (config.Config, []config.Warning, error) {
	t.Helper()
	v.Config["apiVersion"], v.Config["kind"] = "underlay.dev/v1alpha1", "CloudConfig"
	if v.Config["provider"] == nil {
		v.Config["tokenFile"] = "/run/secrets/hcloud/token"
	}
	file, err := yaml.Marshal(v.Config)
	if err != nil {
		t.Fatal(err)
	}
	flags := config.Flags{
		"--allocate-node-cidrs": "true", "--configure-cloud-routes": "true",
		"--cluster-cidr": v.ClusterCIDR, "--service-cluster-ip-range": v.ServiceCIDR,
	}
	token := func(string) ([]byte, error) { return []byte(strings.Repeat("t", 64)), nil }
	return config.Load(flags, file, func(string) string { return "" }, token)
}

func folders(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(deploy + "/kubeadm/*/init.yaml")
	if err != nil || len(found) < 4 {
		t.Fatalf("found only %v: %v", found, err)
	}
	for i, path := range found {
		found[i] = filepath.Join("kubeadm", filepath.Base(filepath.Dir(path)))
	}
	return found
}

// The settings of kubeadm and Underlay agree, and Underlay accepts them without a warning.
func TestRangesAgree(t *testing.T) {
	for _, folder := range folders(t) {
		c := clusterOf(t, folder)
		var v values
		if err := yaml.UnmarshalStrict([]byte(read(t, folder, "values.yaml")), &v); err != nil {
			t.Errorf("%s/values.yaml: %v", folder, err)
			continue
		}
		for _, pair := range [][2]string{
			{c.Networking.PodSubnet, v.ClusterCIDR},
			{c.Networking.ServiceSubnet, v.ServiceCIDR},
			{"https://" + c.ControlPlaneEndpoint, v.APIServer},
		} {
			if pair[0] != pair[1] {
				t.Errorf("%s: kubeadm is told %s, underlay %s", folder, pair[0], pair[1])
			}
		}
		got, warnings, err := settings(t, v)
		if err != nil || len(warnings) > 0 {
			t.Errorf("%s: %v, warnings %v", folder, err, warnings)
			continue
		}
		familiesAgree(t, folder, got)
	}
}

// familiesAgree: a dual-stack cluster is one for Services, for pods and by its name, and each
// family is routed.
func familiesAgree(t *testing.T, folder string, got config.Config) {
	t.Helper()
	pods := map[bool]bool{} // by whether it is IPv6
	for _, p := range got.IPAM.Pools {
		pods[p.Own || p.Prefix.Addr().Is6()] = true
	}
	dual := strings.HasSuffix(folder, "dual-stack")
	if services := len(got.IPAM.ServiceRanges) == 2; pods[true] != dual || !pods[false] ||
		services != dual {
		t.Errorf("%s: pools %+v, service ranges %v", folder, got.IPAM.Pools, got.IPAM.ServiceRanges)
	}
	if routed := got.Families.IPv6 != routes.Unrouted; routed != dual {
		t.Errorf("%s: IPv6 is routed by %q", folder, got.Families.IPv6)
	}
	if cloud := strings.Contains(folder, "cloud"); got.Routes.Enabled != cloud || got.LoadBalancers.UsePrivateIP != cloud {
		t.Errorf("%s: routes %t, load balancers %+v", folder, got.Routes.Enabled, got.LoadBalancers)
	}
}

// Nodes are outside of the ranges of pods and Services, and within the network of load balancers.
func TestNodesAreApart(t *testing.T) {
	for _, folder := range folders(t) {
		c := clusterOf(t, folder)
		for _, file := range []string{"init.yaml", "join.yaml"} {
			for text := range strings.SplitSeq(argument(t, read(t, folder, file), "node-ip"), ",") {
				for _, r := range c.taken() {
					if r.Contains(netip.MustParseAddr(text)) {
						t.Errorf("%s: node %s lies in %s", folder, text, r)
					}
				}
			}
		}
		for _, open := range c.NodePortAddresses {
			for _, r := range c.taken() {
				if prefix, err := netip.ParsePrefix(open); err == nil && prefix.Overlaps(r) {
					t.Errorf("%s: node ports are open in %s, which overlaps %s", folder, open, r)
				}
			}
		}
	}
}
