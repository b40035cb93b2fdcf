package archtest

import "slices"

// Groups of packages that several rows speak of.
const (
	hcloudGo     = "github.com/hetznercloud/hcloud-go/v2/..."
	hcloudSchema = "github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
	pollUntil    = "k8s.io/apimachinery/pkg/util/wait"
	cidrset      = "github.com/cilium/ipam/cidrset"
	gobgp        = "github.com/osrg/gobgp/v4/..."
)

// impure is what a package that only decides has no use for, though it is in
// the standard library: its inputs come as arguments, its findings go back as
// values, and its addresses are netip's.
func impure() []pattern {
	return []pattern{"log/...", "os/...", "net/http/...", "database/...", "syscall", "math/rand/..."}
}

// areas are what the pure packages decide about, each with its edges below it.
func areas() []pattern {
	return []pattern{"./addresses/...", "./ipam/...", "./routes/...", "./lb/..."}
}

// apart keeps each area from the others.
func apart() []rule {
	var rows []rule
	for i, area := range areas() {
		rows = append(rows, rule{
			who: []pattern{area}, never: slices.Delete(areas(), i, i+1),
			reason: "the areas know nothing of each other: what one needs of another is a port, joined in cmd",
		})
	}
	return rows
}

// rules is the table: who, what, why.
func rules() []rule {
	return append(apart(), []rule{
		// The pure packages.
		{
			who:    []pattern{"./ipam"},
			only:   []pattern{"std", cidrset},
			never:  impure(),
			reason: "ipam decides and does nothing else: whatever it needs to know is an argument, so that any schedule can be replayed",
		},
		{
			who:    []pattern{"./addresses", "./routes", "./lb"},
			only:   []pattern{"std", "./internal/editdistance"},
			never:  append(impure(), "net"), // ipam needs its IPNet: cidrset speaks nothing else
			reason: "addresses, routes and lb decide and do nothing else: whatever they need to know is an argument, so that any state can be tried",
		},
		{
			who:    []pattern{"./internal/editdistance"},
			only:   []pattern{"std"},
			never:  append(impure(), "net"),
			reason: "internal/editdistance compares words, for packages that only decide",
		},
		{
			who: []pattern{"./addresses", "./ipam", "./routes", "./lb"}, never: []pattern{"k8s.io/...", "sigs.k8s.io/..."}, tests: true,
			reason: "the pure packages are tested without Kubernetes too, or they would not be pure for long",
		},

		{
			who:    []pattern{"./addresses/bgp"},
			only:   []pattern{"std", "./addresses", "./internal/secret"},
			never:  impure(),
			reason: "addresses/bgp decides what routers are told and knows no speaker: the configuration is checked with it, in programs that have no BGP",
		},
		{
			who:    []pattern{"./addresses/bgp/speaker"},
			only:   []pattern{"std", "./addresses", "./addresses/bgp", gobgp, "github.com/go-logr/logr", "k8s.io/klog/v2"},
			reason: "the speaker keeps sessions and knows neither Nodes nor Services",
		},

		// Their edges.
		{
			who: areas(), never: []pattern{"./internal/cloud/...", "./internal/hetzner/...", "./internal/robot/...", "./internal/dedicated/...", "./internal/requests/..."},
			reason: "controllers speak to ports of their own, so that another cloud needs no change in them",
		},

		{
			who: []pattern{"./addresses/controller"}, only: []pattern{"std", "./addresses", "./internal/editdistance", "./internal/kube", "k8s.io/..."},
			reason: "addresses/controller keeps the ledger: what moves an address by an API is its port Router, and pools come as values",
		},
		{
			who: []pattern{"./addresses/agent"}, only: []pattern{"std", "./addresses", "./internal/kube", "k8s.io/...", "golang.org/x/sys/unix"},
			reason: "addresses/agent tells movers what to hold, and is told what they do: what they are, and the kernel, come from cmd",
		},
		{
			who: []pattern{"./addresses/layer2"}, only: []pattern{"std", "./addresses", "github.com/mdlayher/arp", "github.com/mdlayher/ndp", "k8s.io/klog/v2"},
			reason: "addresses/layer2 knows frames, a ledger's epochs and the time: neither Kubernetes nor sockets, so that any segment can be simulated",
		},
		{
			who: []pattern{"./..."}, except: []pattern{"./addresses/layer2/socket"}, never: []pattern{"github.com/mdlayher/packet/..."}, tests: true,
			reason: "addresses/layer2/socket is the one place with packet sockets, which take NET_RAW",
		},
		{
			who: []pattern{"./addresses/layer2/..."}, except: []pattern{"./addresses/layer2"}, only: []pattern{"std", "./addresses", "./addresses/layer2", "github.com/mdlayher/...", "golang.org/x/net/bpf", "golang.org/x/sys/unix"},
			reason: "addresses/layer2/socket sends and receives; what and when is decided where it can be simulated",
		},

		// Internal packages.
		{
			who: []pattern{"./internal/kube/..."}, never: []pattern{"./internal/cloud/...", "./internal/hetzner/...", "./ipam/controller", "./routes/controller", "./lb/controller"},
			reason: "internal/kube translates between Kubernetes objects and domain values, below every controller",
		},
		{
			who: []pattern{"./internal/cloud/..."}, never: []pattern{"./internal/hetzner/...", "./internal/robot/...", "./internal/dedicated/...", "./ipam/controller", "./routes/controller", "./lb/controller"},
			reason: "internal/cloud declares the ports Servers and DedicatedServers; their implementations come from cmd",
		},
		{
			who: []pattern{"./internal/dedicated/..."}, only: []pattern{"std", "./addresses", "./internal/cloud", "./internal/vswitch", "./internal/robot", "./internal/requests"},
			reason: "internal/dedicated makes of what Robot says what internal/cloud, internal/vswitch and addresses/controller ask for; it knows neither Nodes nor the web service",
		},
		{
			who: []pattern{"./internal/vswitch/..."}, only: []pattern{"std", "./internal/kube", "k8s.io/..."},
			reason: "internal/vswitch tells Nodes what its port Members says; what implements it, and what else rests on the vSwitch, come from cmd",
		},
		{
			who: []pattern{"./internal/directory"}, only: []pattern{"std", "./internal/kube", "k8s.io/..."},
			reason: "internal/directory carries Nodes from the controller manager to the agents: what either does with them comes from cmd",
		},
		{
			who: []pattern{"./internal/hetzner/..."}, never: []pattern{"./internal/kube/...", "./ipam/controller", "./routes/controller", "./lb/controller"},
			reason: "internal/hetzner implements ports for the Hetzner Cloud and knows nothing of who calls them",
		},
		{
			who: []pattern{"./internal/robot/..."}, only: []pattern{"std", "./internal/robot/...", "./internal/requests", "./internal/secret", "k8s.io/component-base/metrics"},
			reason: "internal/robot speaks to the web service of dedicated servers and knows neither the cloud nor who calls it",
		},
		{
			who: []pattern{"./internal/requests/..."}, only: []pattern{"std"},
			reason: "internal/requests orders requests and knows no API: each brings its own budget",
		},
		{
			who: []pattern{"./internal/secret", "./internal/sleep", "./internal/ipnet"}, only: []pattern{"std"},
			reason: "internal/secret, sleep and ipnet do one small thing each, for whoever needs it",
		},
		{
			who: []pattern{"./internal/leadership/..."}, never: []pattern{"./..."},
			reason: "internal/leadership ends the process's work for whoever does it, and knows none of it",
		},
		{
			who: []pattern{"./hcloudsim/..."}, only: []pattern{"std", "./hcloudsim/...", "./internal/httpsim", "./internal/sleep", hcloudSchema},
			reason: "the simulator is useful to others and judges our own client: it shares the API's wire format with it, nothing else",
		},
		{
			who: []pattern{"./..."}, except: []pattern{"./cmd/...", "./test/...", "./hcloudsim/...", "./internal/measure"}, never: []pattern{"./hcloudsim/..."},
			reason: "the simulator stands in for the cloud in tests; nothing that ships may know of it",
		},
		{
			who: []pattern{"./hcloudsim/profile"}, only: []pattern{"std"},
			never:  append(impure(), "net"),
			reason: "the profile is words and values, so that programs which ship may write one",
		},
		{
			who:    []pattern{"./internal/measure"},
			only:   []pattern{"std", "./hcloudsim/profile", "./internal/ipnet", "./internal/requests", "./internal/secret", "./internal/sleep", pollUntil, hcloudGo},
			reason: "internal/measure makes what no controller may make, servers for one; of the simulator it has the profile alone, so that any cloud can be measured",
		},
		{
			who: []pattern{"./..."}, except: []pattern{"./cmd/...", "./test/...", "./internal/config/...", "./internal/wiring/...", "./internal/survey/...", "./internal/doctor/...", "./internal/webui"}, never: []pattern{"./internal/config/..."},
			reason: "only cmd, and who compares it with the world, knows the configuration as a whole; everything else is handed what it needs",
		},

		{
			who: []pattern{"./internal/cni/...", "./internal/netfilter/...", "./internal/sysctl/..."}, never: []pattern{"./...", "k8s.io/..."},
			reason: "the agent's edges change the machine as they are told; they know neither Nodes nor each other",
		},

		{
			who:    []pattern{"./internal/connectivity"},
			only:   []pattern{"std"},
			never:  append(impure(), "net"),
			reason: "internal/connectivity plans trials and judges results: what was tried is an argument, so that any network can be judged",
		},
		{
			who: []pattern{"./internal/connectivity/probe"}, only: []pattern{"std", "./internal/connectivity"},
			reason: "the probe runs in a pod without rights, and knows no API server",
		},
		{
			who: []pattern{"./internal/connectivity/cluster"}, only: []pattern{"std", "./internal/connectivity", "./internal/kube", "k8s.io/..."},
			reason: "internal/connectivity/cluster starts pods and reads their logs; it judges nothing and asks no cloud",
		},
		{
			who:    []pattern{"./internal/table"},
			only:   []pattern{"std"},
			never:  impure(),
			reason: "internal/table holds and prints rows: what they are about is decided by those that fill them",
		},
		{
			who:    []pattern{"./internal/webui"},
			only:   []pattern{"std", "./internal/survey", "./internal/doctor", "./internal/table", "./internal/config", "k8s.io/apimachinery/..."},
			never:  impure(),
			reason: "internal/webui makes of one look what the page shows: what it knows is an argument, so that a page of any cluster can be tried",
		},
		{
			who:    []pattern{"./internal/webui/server"},
			only:   []pattern{"std", "./internal/webui", "./internal/survey"},
			reason: "internal/webui/server shows what its feed brings and asks neither the API server nor the cloud",
		},

		// One importer each.
		{
			who: []pattern{"./..."}, except: []pattern{"./internal/hetzner/...", "./internal/measure", "./hcloudsim/...", "./test/..."}, never: []pattern{hcloudGo},
			reason: "internal/hetzner is the one place that speaks to the cloud: one budget, one cache, one writer per network; internal/measure makes what no controller may be able to make, servers for one",
		},
		{
			who: []pattern{"./..."}, except: []pattern{"./addresses/bgp/speaker"}, never: []pattern{gobgp}, tests: true,
			reason: "addresses/bgp/speaker is the one place that speaks BGP: the library keeps settings by process, and is large",
		},
		{
			who: []pattern{"./..."}, never: []pattern{"github.com/syself/hrobot-go/..."},
			reason: "internal/robot is our client of the Robot web service, and says why; the other one only tests the simulator",
		},
		{
			who: []pattern{"./..."}, except: []pattern{"./routes/kernel/...", "./internal/netfilter"},
			never:  []pattern{"github.com/vishvananda/netlink/...", "github.com/mdlayher/netlink/...", "github.com/jsimonetti/rtnetlink/..."},
			reason: "routes/kernel is the one place that changes the machine's route table; internal/netfilter asks for tracked connections",
		},
		{
			who: []pattern{"./routes/agent/..."}, never: []pattern{"./routes/kernel/...", "./routes/controller/...", "github.com/vishvananda/netns/..."}, tests: true,
			reason: "the agent decides on a port: every schedule can be replayed without root, on a machine that is not this one",
		},
		{
			who:    []pattern{"./routes/kernel/..."},
			only:   []pattern{"std", "./routes", "./routes/agent", "./routes/kernel/...", "github.com/vishvananda/...", "golang.org/x/sys/..."},
			reason: "routes/kernel does what it is told and reports what is there: it knows no Kubernetes and decides nothing",
		},
		{
			who: []pattern{"./..."}, except: []pattern{"./ipam"}, never: []pattern{"github.com/cilium/ipam/..."}, tests: true,
			reason: "cidrset has traps that the search of ipam keeps away from; nobody else may step into them",
		},

		{
			who: []pattern{"./..."}, except: []pattern{"./internal/netfilter/..."},
			never:  []pattern{"sigs.k8s.io/knftables/...", "github.com/google/nftables/..."},
			reason: "internal/netfilter is the one place that changes the machine's nftables",
		},

		// Tests and their tools.
		{
			who: []pattern{"./..."}, except: []pattern{"./test/..."}, never: []pattern{"./test/..."},
			reason: "what ships does not depend on what tests it",
		},
		{
			who: []pattern{"./..."}, except: []pattern{"./test/testenv/image", "./test/e2e/kubeadm"},
			never:  []pattern{"github.com/google/go-containerregistry/..."},
			tests:  true,
			reason: "images are packed in one place, test/testenv/image, and only what tests it reads them back",
		},
		{
			who: []pattern{"./..."}, except: []pattern{"./test/webui"},
			never:  []pattern{"github.com/chromedp/..."},
			tests:  true,
			reason: "a browser is driven in one place, test/webui: nothing else needs one",
		},
		{
			who: []pattern{"./test/testenv/machine/..."}, only: []pattern{"std", "./test/testenv/complete", "./test/testenv/gobuild", "./test/testenv/kubebinary", "./test/testenv/machine", "./test/testenv/netns", "./test/testenv/process"},
			reason: "a machine knows no cluster and no Kubernetes objects: whatever becomes of it is done by the commands that run on it",
		},
		{
			who: []pattern{"./..."}, never: []pattern{"k8s.io/kubernetes/..."}, tests: true,
			reason: "k8s.io/kubernetes is no library: its programs are built by the module test/kube",
		},
	}...)
}
