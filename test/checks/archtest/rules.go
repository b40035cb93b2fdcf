package archtest

import "strings"

// Groups of packages that several rows use.
const (
	hcloudGo     = "github.com/hetznercloud/hcloud-go/v2/..."
	hcloudSchema = "github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
	pollUntil    = "k8s.io/apimachinery/pkg/util/wait"
	bart         = "github.com/gaissmai/bart"
	gobgp        = "github.com/osrg/gobgp/v4/..."
)

// impure is the part of the standard library that a pure package must not import: its inputs are
// arguments, its findings are return values, and its addresses are netip's.
const impure = "log/... os/... net/http/... database/... syscall math/rand/..."

// areas are the topics of the pure packages, each with its components below it.
const areas = "./addresses/... ./ipam/... ./routes/... ./lb/... ./policy/..."

// only is a rule that limits some packages to certain imports; both are patterns separated by
// blanks.
func only(importer, what, reason string) rule {
	return rule{importer: patterns(importer), allowed: patterns(what), reason: reason}
}

// never is a rule that forbids some packages to import others.
func never(importer, what, reason string) rule { return only(importer, "", reason).never(what) }

func (r rule) never(what string) rule { r.forbidden = patterns(what); return r }

func (r rule) except(importer string) rule { r.spared = patterns(importer); return r }

func (r rule) inTests() rule { r.tests = true; return r }

func patterns(text string) (all []pattern) {
	for word := range strings.FieldsSeq(text) {
		all = append(all, pattern(word))
	}
	return all
}

// apart forbids imports between areas.
func apart() []rule {
	var rows []rule
	for area := range strings.FieldsSeq(areas) {
		rows = append(rows, never(area, strings.ReplaceAll(areas, area, ""),
			"the areas know nothing of each other: what one needs of another is a port, joined in cmd"))
	}
	return rows
}

// rules is the table: packages, imports, reason.
func rules() []rule {
	return append(apart(), []rule{
		// The pure packages.
		only("./ipam", "std "+bart,
			"ipam decides and does nothing else: whatever it needs to know is an argument, so that any schedule can be replayed").never(impure + " net"),
		only("./addresses ./routes ./lb", "std ./internal/editdistance",
			"addresses, routes and lb decide and do nothing else: whatever they need to know is an argument, so that any state can be tried").never(impure + " net"),
		only("./policy", "std",
			"policy decides what NetworkPolicies allow: what it needs to know is an argument, so that any cluster can be tried").never(impure + " net"),
		only("./internal/editdistance", "std",
			"internal/editdistance compares words, for packages that only decide").never(impure + " net"),
		never("./addresses ./ipam ./routes ./lb ./policy", "k8s.io/... sigs.k8s.io/...",
			"the pure packages are tested without Kubernetes too, or they would not be pure for long").inTests(),

		only("./addresses/bgp", "std ./internal/secret",
			"addresses/bgp decides what routers are told and knows no speaker: the configuration has its peers, in programs that have no BGP").never(impure),
		only("./addresses/bgp/speaker", "std ./addresses ./addresses/bgp "+gobgp+" github.com/go-logr/logr k8s.io/klog/v2",
			"the speaker keeps sessions and knows neither Nodes nor Services"),

		// Their components.
		never(areas, "./internal/cloud/... ./internal/hetzner/... ./internal/robot/... ./internal/requests/...",
			"controllers speak to ports of their own, so that another cloud needs no change in them"),

		only("./addresses/controller", "std ./addresses ./internal/editdistance ./internal/kube ./internal/promauto k8s.io/...",
			"addresses/controller keeps the ledger: what moves an address by an API is its port Router, and pools come as values"),
		only("./addresses/agent", "std ./addresses ./internal/kube ./internal/promauto k8s.io/...",
			"addresses/agent tells movers what to hold, and is told what they do: what they are, and the kernel, come from cmd"),
		only("./addresses/layer2", "std ./addresses github.com/mdlayher/arp github.com/mdlayher/ndp k8s.io/klog/v2",
			"addresses/layer2 knows frames, a ledger's epochs and the time: neither Kubernetes nor sockets, so that any segment can be simulated"),
		never("./...", "github.com/mdlayher/packet/...",
			"addresses/layer2/socket is the one place with packet sockets, which take NET_RAW").except("./addresses/layer2/socket").inTests(),
		only("./addresses/layer2/...", "std ./addresses ./addresses/layer2 github.com/mdlayher/... golang.org/x/net/bpf golang.org/x/sys/unix",
			"addresses/layer2/socket sends and receives; what and when is decided where it can be simulated").except("./addresses/layer2"),

		only("./policy/agent", "std ./policy ./internal/kube ./internal/promauto k8s.io/...",
			"policy/agent feeds the index and hands the ruleset on: the table is its port, so that any order of events can be tried without a kernel"),

		// Internal packages.
		never("./internal/kube/...", "./internal/cloud/... ./internal/hetzner/... ./ipam/controller ./routes/controller ./lb/controller",
			"internal/kube translates between Kubernetes objects and domain values, below every controller"),
		never("./internal/cloud/...", "./internal/hetzner/... ./internal/robot/... ./ipam/controller ./routes/controller ./lb/controller",
			"internal/cloud declares the ports Servers and Inventory; their implementations come from cmd"),
		only("./internal/vswitch/...", "std ./internal/kube ./internal/promauto k8s.io/...",
			"internal/vswitch tells Nodes what its port Members says; what implements it, and what else rests on the vSwitch, come from cmd"),
		only("./internal/directory", "std ./internal/kube k8s.io/...",
			"internal/directory carries Nodes from the controller manager to the agents: what either does with them comes from cmd"),
		never("./internal/hetzner/...", "./internal/kube/... ./ipam/controller ./routes/controller ./lb/controller",
			"internal/hetzner implements ports for the Hetzner Cloud and knows nothing of who calls them"),
		only("./internal/robot/...", "std ./addresses ./internal/cloud ./internal/vswitch ./internal/robot/... ./internal/promauto ./internal/requests ./internal/secret k8s.io/component-base/metrics",
			"internal/robot speaks to the web service of dedicated servers for the ports of internal/cloud, internal/vswitch and addresses/controller, and knows nothing of who calls it"),
		only("./internal/requests/...", "std",
			"internal/requests orders requests and knows no API: each brings its own budget"),
		only("./internal/promauto", "std k8s.io/component-base/metrics",
			"internal/promauto creates metrics, and knows none of them"),
		only("./internal/secret ./internal/sleep ./internal/ipnet", "std",
			"internal/secret, sleep and ipnet do one small thing each, for whoever needs it"),
		never("./internal/leadership/...", "./...",
			"internal/leadership ends the process's work for whoever does it, and knows none of it"),
		only("./hcloudsim/...", "std ./hcloudsim/... ./internal/httpsim ./internal/sleep k8s.io/apimachinery/pkg/labels k8s.io/apimachinery/pkg/util/validation "+hcloudSchema,
			"the simulator is useful to others and judges our own client: it shares the API's wire format with it, nothing else; labels have Kubernetes' grammar"),
		never("./...", "./hcloudsim/...",
			"the simulator stands in for the cloud in tests; nothing that ships may know of it").except("./cmd/... ./test/... ./hcloudsim/... ./internal/measure"),
		only("./hcloudsim/profile", "std",
			"the profile is words and values, so that programs which ship may write one").never(impure + " net"),
		only("./internal/measure", "std ./hcloudsim/profile ./internal/ipnet ./internal/requests ./internal/secret ./internal/sleep "+pollUntil+" "+hcloudGo,
			"internal/measure makes what no controller may make, servers for one; of the simulator it has the profile alone, so that any cloud can be measured"),
		never("./...", "./internal/config/...",
			"only cmd, and who compares it with the world, knows the configuration as a whole; everything else is handed what it needs").except("./cmd/... ./test/... ./internal/config/... ./internal/wiring/... ./internal/survey/... ./internal/doctor/... ./internal/webui"),

		never("./internal/cni/... ./internal/sysctl/...", "./... k8s.io/...",
			"the agent's edges change the machine as they are told; they know neither Nodes nor each other"),
		only("./internal/netfilter", "std ./policy ./internal/ipnet github.com/vishvananda/netlink/... golang.org/x/sys/unix sigs.k8s.io/knftables",
			"internal/netfilter changes the machine's filters as it is told; for policies it is told a value of policy"),

		only("./internal/connectivity", "std",
			"internal/connectivity plans trials and judges results: what was tried is an argument, so that any network can be judged").never(impure + " net"),
		only("./internal/connectivity/probe", "std ./internal/connectivity",
			"the probe runs in a pod without rights, and knows no API server"),
		only("./internal/connectivity/cluster", "std ./internal/connectivity ./internal/kube k8s.io/...",
			"internal/connectivity/cluster starts pods and reads their logs; it judges nothing and asks no cloud"),
		only("./internal/table", "std",
			"internal/table holds and prints rows: what they are about is decided by those that fill them").never(impure),
		only("./internal/webui", "std ./internal/survey ./internal/doctor ./internal/table ./internal/config k8s.io/apimachinery/...",
			"internal/webui makes of one look what the page shows: what it knows is an argument, so that a page of any cluster can be tried").never(impure),
		only("./internal/webui/server", "std ./internal/webui ./internal/survey",
			"internal/webui/server shows what its feed brings and asks neither the API server nor the cloud"),

		// One importer each.
		never("./...", hcloudGo,
			"internal/hetzner is the one place that speaks to the cloud: one budget, one cache, one writer per network; internal/measure makes what no controller may be able to make, servers for one").except("./internal/hetzner/... ./internal/measure ./hcloudsim/... ./test/..."),
		never("./...", gobgp,
			"addresses/bgp/speaker is the one place that speaks BGP: the library keeps settings by process, and is large").except("./addresses/bgp/speaker").inTests(),
		never("./...", "github.com/syself/hrobot-go/...",
			"internal/robot is our client of the Robot web service, and says why; the other one only tests the simulator"),
		never("./...", "github.com/vishvananda/netlink/... github.com/mdlayher/netlink/... github.com/jsimonetti/rtnetlink/...",
			"routes/kernel is the one place that changes the machine's route table; routes/wireguard has its own device, and internal/netfilter asks for tracked connections").except("./routes/kernel/... ./routes/wireguard ./internal/netfilter"),
		never("./...", "golang.zx2c4.com/...",
			"routes/wireguard is the one place that has keys of tunnels").except("./routes/wireguard").inTests(),
		only("./routes/wireguard", "std ./internal/ipnet ./internal/secret ./routes/agent github.com/vishvananda/netlink golang.org/x/sys/unix golang.zx2c4.com/wireguard/wgctrl/...",
			"routes/wireguard sets the device as it is told: which peers there are is decided in routes/agent"),
		never("./routes/agent/...", "./routes/kernel/... ./routes/controller/... github.com/vishvananda/netns/...",
			"the agent decides on a port: every schedule can be replayed without root, on a machine that is not this one").inTests(),
		only("./routes/kernel/...", "std ./routes ./routes/agent ./routes/kernel/... github.com/vishvananda/... golang.org/x/sys/...",
			"routes/kernel does what it is told and reports what is there: it knows no Kubernetes and decides nothing"),

		never("./...", "github.com/cilium/ipam/...",
			"cidrset has no holders and no quarantine; the tests of ipam compare the order of node prefixes with its").except("./ipam").inTests(),

		never("./...", "sigs.k8s.io/knftables/... github.com/google/nftables/...",
			"internal/netfilter is the one place that changes the machine's nftables").except("./internal/netfilter/..."),

		// Tests and their tools.
		never("./...", "./test/...",
			"what ships does not depend on what tests it").except("./test/..."),
		never("./...", "github.com/google/go-containerregistry/...",
			"images are packed in one place, test/testenv/image, and only what tests it reads them back").except("./test/testenv/image ./test/e2e/kubeadm").inTests(),
		never("./...", "github.com/chromedp/...",
			"a browser is driven in one place, test/webui: nothing else needs one").except("./test/webui").inTests(),
		only("./test/testenv/machine/...", "std ./test/testenv/complete ./test/testenv/gobuild ./test/testenv/kubebinary ./test/testenv/machine ./test/testenv/netns ./test/testenv/process",
			"a machine knows no cluster and no Kubernetes objects: whatever becomes of it is done by the commands that run on it"),
		never("./...", "k8s.io/kubernetes/...",
			"k8s.io/kubernetes is no library: its programs are built by the module test/kube").inTests(),
	}...)
}
