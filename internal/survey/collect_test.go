package survey_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/hetzner"
	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/ipam"
	ipamcontroller "github.com/underlay-ccm/underlay/ipam/controller"
)

const token = "the-token-of-the-survey"

type nobody struct{}

func (nobody) Register(metrics.Registerable) error { return nil }

// simulated is a cloud with the network and one server in it.
func simulated(t *testing.T) (*hcloudsim.Simulator, func(string) (*hetzner.Client, error)) {
	t.Helper()
	sim := hcloudsim.New(hcloudsim.Options{Token: token})
	network, err := sim.CreateNetwork(hcloudsim.NetworkSeed{
		Name: "cluster", IPRange: netip.MustParsePrefix("10.0.0.0/8"), Subnets: []hcloudsim.SubnetSeed{{IPRange: netip.MustParsePrefix("10.0.0.0/16")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sim.CreateServer(hcloudsim.ServerSeed{Name: "node-1", Network: network.ID}); err != nil {
		t.Fatal(err)
	}
	return sim, cloudOf(sim, token)
}

func cloudOf(sim *hcloudsim.Simulator, token string) func(string) (*hetzner.Client, error) {
	return func(endpoint string) (*hetzner.Client, error) {
		return hetzner.New(hetzner.Options{
			Endpoint: endpoint, Token: func() (string, error) { return token, nil }, Application: "survey", Version: "test",
			Registry: nobody{}, Transport: sim.Transport(),
		})
	}
}

// installed are the objects of deploy/ccm.
func installed() []runtime.Object {
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "underlay-ccm", Labels: map[string]string{"app.kubernetes.io/name": "underlay-ccm"}},
	}
	deployment.Spec.Template.Spec = corev1.PodSpec{
		Containers: []corev1.Container{
			{Name: "beside"},
			{
				Name: "underlay-ccm",
				Args: []string{
					"--cloud-config=/etc/underlay/config.yaml", "--allocate-node-cidrs=true", "--cluster-cidr=10.244.0.0/20", "--service-cluster-ip-range=10.96.0.0/16",
					"--secure-port=10258", "--leader-elect", "-v=2", "--cluster-name=mine",
				},
				VolumeMounts: []corev1.VolumeMount{{Name: "token", MountPath: "/run/secrets/hcloud"}, {Name: "config", MountPath: "/etc/underlay/"}},
			},
		},
		Volumes: []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}},
		}}},
	}
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "settings"}, Data: map[string]string{"config.yaml": usualFile + "tokenFile: /run/secrets/hcloud/token\n"}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", UID: "u1"}, Spec: corev1.NodeSpec{PodCIDRs: []string{"10.244.1.0/24"}}}
	return []runtime.Object{
		deployment, settings, node,
		&networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.96.0.0/16", "fd00:96::/112"}}},
	}
}

func TestCollect(t *testing.T) {
	sim, cloud := simulated(t)
	sim.ResetRequests()
	client := fake.NewClientset(installed()...)
	s, err := survey.Collect(t.Context(), survey.Sources{Client: client, Cloud: cloud}, survey.Want{Parts: survey.Everything, Node: "node-1"})
	if err != nil {
		t.Fatal(err)
	}
	expectTexts(t, "not seen", s.NotSeen())
	if !s.Saw(survey.Everything) || s.Config.ClusterName != "mine" || len(s.Config.IPAM.Pools) != 1 || len(s.ServiceCIDRs) != 2 ||
		len(s.Servers) != 1 || s.Network.Name != "cluster" || s.Network.Servers != 1 || s.HasLedger() || len(s.ConfigWarnings) > 0 {
		t.Errorf("%+v", s)
	}
	if want := "ConfigMap kube-system/settings (config.yaml); flags of the Deployment kube-system/underlay-ccm"; s.ConfigFrom != want {
		t.Errorf("configuration from %q, want %q", s.ConfigFrom, want)
	}
	if g, err := s.Gateways(); err != nil || !g.Of["node-1"].IsValid() {
		t.Errorf("the Node's server isn't found: %v, %+v", err, g)
	}
	for _, r := range sim.Requests() {
		if r.Method != http.MethodGet {
			t.Errorf("sent %s %s", r.Method, r.Path)
		}
	}
	for _, a := range client.Actions() {
		if v := a.GetVerb(); v != "get" && v != "list" {
			t.Errorf("asked to %s %s", v, a.GetResource().Resource)
		}
	}
	if len(sim.Requests()) == 0 || len(client.Actions()) == 0 {
		t.Error("nothing was asked, so nothing is proved")
	}
}

// Only the wanted parts are requested.
func TestCollectRequestsOnlyWantedParts(t *testing.T) {
	sim, cloud := simulated(t)
	sim.ResetRequests()
	client := fake.NewClientset(installed()...)
	s, err := survey.Collect(t.Context(), survey.Sources{Client: client, Cloud: cloud}, survey.Want{
		Parts: survey.PartNodes,
	})
	if err != nil || s.Parts != survey.PartNodes || len(s.Nodes) != 1 ||
		s.Require(survey.PartServices) == nil {
		t.Fatalf("%v, %+v", err, s)
	}
	if len(client.Actions()) != 1 || len(sim.Requests()) != 0 {
		t.Errorf("asked for more: %v, %v", client.Actions(), sim.Requests())
	}
}

// Pods are not read for NetworkPolicies that don't exist.
func TestCollectNetworkPolicies(t *testing.T) {
	deny := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "deny"}}
	for _, objects := range [][]runtime.Object{nil, {deny, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "web"}}}} {
		client := fake.NewClientset(objects...)
		s, err := survey.Collect(t.Context(), survey.Sources{Client: client}, survey.Want{
			Parts: survey.PartNodes | survey.PartNetworkPolicies,
		})
		if err != nil || !s.Saw(survey.PartNetworkPolicies) ||
			(s.NetworkPolicies != nil) != (objects != nil) {
			t.Fatalf("%v, %+v", err, s)
		}
		if s.NetworkPolicies == nil && len(client.Actions()) != 2 {
			t.Errorf("asked for more: %v", client.Actions())
		}
		if s.NetworkPolicies != nil &&
			(s.NetworkPolicies.Policies() != 1 || len(s.NetworkPolicies.Warnings()) != 1) {
			t.Errorf("%d policies, warnings %v", s.NetworkPolicies.Policies(), s.NetworkPolicies.Warnings())
		}
	}
}

// A CCM in another namespace is found there, and its lease in the namespace of its flags; kubeadm's
// objects are always in the same place.
func TestCollectFromAnotherNamespace(t *testing.T) {
	const home = "infra"
	all := installed()
	deployment, settings := all[0].(*appsv1.Deployment), all[1].(*corev1.ConfigMap)
	deployment.Namespace, settings.Namespace = home, home
	args := &deployment.Spec.Template.Spec.Containers[1].Args
	*args = append(*args, "--leader-elect-resource-namespace="+home, "--leader-elect-resource-name=mine")
	named := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name}
	}
	all = append(all,
		&coordinationv1.Lease{ObjectMeta: named(home, "mine")}, &coordinationv1.Lease{ObjectMeta: named("kube-system", "cloud-controller-manager")},
		&appsv1.DaemonSet{ObjectMeta: named(home, "underlay-agent")}, &appsv1.DaemonSet{ObjectMeta: named("kube-system", "kube-proxy")},
		&corev1.Pod{ObjectMeta: named("kube-system", "kube-controller-manager-a")}, &corev1.Pod{ObjectMeta: named("default", "web")},
		&corev1.ConfigMap{ObjectMeta: named("kube-system", "kube-proxy")},
	)
	s, err := survey.Collect(t.Context(), survey.Sources{Client: fake.NewClientset(all...), Namespace: home, NoCloud: "no token"}, survey.Want{Parts: survey.Everything &^ survey.Cloud})
	if err != nil {
		t.Fatal(err)
	}
	expectTexts(t, "not seen", s.NotSeen())
	if want := "ConfigMap infra/settings (config.yaml); flags of the Deployment infra/underlay-ccm"; s.ConfigFrom != want {
		t.Errorf("configuration from %q, want %q", s.ConfigFrom, want)
	}
	if s.Namespace != home || s.LeaseName.String() != "infra/mine" || s.Lease == nil || s.Lease.Namespace != home || s.KubeProxy == nil {
		t.Errorf("namespace %q, lease %s: %+v", s.Namespace, s.LeaseName, s.Lease)
	}
	if len(s.Deployments) != 1 || len(s.DaemonSets) != 2 || s.DaemonSets[0].Namespace != home ||
		len(s.Pods) != 1 {
		t.Errorf("workloads: %v, %v, %v", s.Deployments, s.DaemonSets, s.Pods)
	}
	// Without the option, it is not searched there.
	s, err = survey.Collect(t.Context(), survey.Sources{Client: fake.NewClientset(all...)},
		survey.Want{Parts: survey.PartConfig | survey.PartSetup})
	if err != nil || s.Saw(survey.PartConfig) || s.Lease == nil || s.Lease.Namespace != "kube-system" {
		t.Errorf("%v, %+v", err, s)
	}
}

func TestCollectWithoutATokenOrWithAWrongOne(t *testing.T) {
	sim, _ := simulated(t)
	for name, c := range map[string]struct {
		from survey.Sources
		want string
	}{
		"none":  {survey.Sources{NoCloud: "there is no token"}, "servers, network and its routes, load balancers: there is no token"},
		"wrong": {survey.Sources{Cloud: cloudOf(sim, "another")}, "network and its routes: the cloud refuses the token"},
	} {
		c.from.Client = fake.NewClientset(installed()...)
		s, err := survey.Collect(t.Context(), c.from, survey.Want{Parts: survey.Everything})
		if err != nil || !s.Saw(survey.Everything&^survey.Cloud) || len(s.NotSeen()) == 0 ||
			!strings.HasPrefix(s.NotSeen()[0], c.want) {
			t.Errorf("%s: %v, %q", name, err, s.NotSeen())
		}
	}
}

// On metal there is no cloud to read, and no token is needed.
func TestCollectOnMetal(t *testing.T) {
	file := "apiVersion: underlay.dev/v1alpha1\nkind: CloudConfig\nprovider: metal\n"
	client := fake.NewClientset(installed()[2:]...)
	s, err := survey.Collect(t.Context(), survey.Sources{
		Client: client, NoCloud: "there is no token",
		Configuration: survey.Configuration{File: []byte(file), Flags: []string{"--cluster-cidr=10.244.0.0/20", "--allocate-node-cidrs"}},
	}, survey.Want{Parts: survey.NodesParts})
	if err != nil || s.Saw(survey.PartServers) {
		t.Fatalf("%v, %s", err, s.Parts)
	}
	v, err := survey.NodesOf(s)
	if all := rows(v, "nodes"); err != nil || len(all) != 1 || all[0]["ROUTE"] != survey.RouteNotNeeded || all[0]["FAMILIES"] != "IPv4 node" {
		t.Errorf("%v, %+v", err, v)
	}
	expectTexts(t, "not seen", v.NotSeen)
}

// Each denied request is reported with its verb and resource, and the rest is read.
func TestCollectWithoutRights(t *testing.T) {
	for _, c := range []struct {
		verb, resource string
		part           survey.Part
		want           string
	}{
		{"list", "nodes", survey.PartNodes, `the verb "list" on "nodes"`},
		{"get", "configmaps", survey.PartLedger, `the verb "get" on "configmaps" named underlay-node-ipam in namespace kube-system`},
		{"list", "services", survey.PartServices, `the verb "list" on "services"`},
		{"list", "events", survey.PartEvents, `the verb "list" on "events"`},
		{"list", "endpointslices", survey.PartEndpointSlices, `the verb "list" on "endpointslices.discovery.k8s.io"`},
		{"list", "servicecidrs", survey.PartServiceCIDRs, `the verb "list" on "servicecidrs.networking.k8s.io"`},
		{"list", "daemonsets", survey.PartWorkloads, `the verb "list" on "daemonsets.apps" in namespace kube-system`},
		{"get", "leases", survey.PartSetup, `the verb "get" on "leases.coordination.k8s.io" named cloud-controller-manager in namespace kube-system`},
		{"list", "networkpolicies", survey.PartNetworkPolicies, `the verb "list" on "networkpolicies.networking.k8s.io"`},
		{"list", "deployments", survey.PartConfig, `the verb "list" on "deployments.apps" in namespace kube-system`},
	} {
		t.Run(c.resource, func(t *testing.T) {
			client := fake.NewClientset(installed()...)
			client.PrependReactor(c.verb, c.resource,
				func(a clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: c.resource}, "", errors.New("no"))
				})
			s, err := survey.Collect(t.Context(), survey.Sources{Client: client, NoCloud: "no token"}, survey.Want{Parts: survey.Everything})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Require(c.part); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
			if c.part != survey.PartNodes && !s.Saw(survey.PartNodes) {
				t.Error("Nodes were not looked at")
			}
		})
	}
}

// A ConfigMap of the ledger that is missing is a fault, and the others are read.
func TestCollectReadsAllShards(t *testing.T) {
	objects := installed()
	for object := range ipam.Shards {
		if object == 3 {
			continue
		}
		name := ipamcontroller.ObjectName(object)
		data := map[string]string{ipam.MarkKey: ipam.Mark(object)}
		if object == 1 {
			data["node-1"] = "uid=u1 10.244.16.0/24@default-ipv4"
		}
		objects = append(objects, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name}, Data: data})
	}
	client := fake.NewClientset(objects...)
	s, err := survey.Collect(t.Context(), survey.Sources{Client: client}, survey.Want{
		Parts: survey.PartLedger,
	})
	if err != nil || !s.Saw(survey.PartLedger) {
		t.Fatal(err, s.NotSeen())
	}
	holdings, faults := s.Holdings()
	if len(holdings) != 1 || holdings[0].Node.Name != "node-1" {
		t.Errorf("holdings %+v, want that of node-1", holdings)
	}
	if len(faults) != 1 || faults[0].ConfigMap != "underlay-node-ipam-3" || faults[0].Key != "" {
		t.Errorf("%v, want that shard 3 is lost", faults)
	}
}

func TestCollectGivesUp(t *testing.T) {
	broken := fake.NewClientset(installed()...)
	broken.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("connection refused")
	})
	_, err := survey.Collect(t.Context(), survey.Sources{Client: broken}, survey.Want{
		Parts: survey.Everything,
	})
	if err == nil || !strings.Contains(err.Error(), "the API server doesn't respond (list nodes: connection refused)") {
		t.Errorf("unreachable: %v", err)
	}
	late, cancel := context.WithTimeoutCause(t.Context(), time.Nanosecond, errors.New("it took too long"))
	defer cancel()
	<-late.Done()
	slow := fake.NewClientset()
	slow.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, late.Err() })
	if _, err = survey.Collect(late, survey.Sources{Client: slow}, survey.Want{Parts: survey.PartNodes}); err == nil || !strings.Contains(err.Error(), "looking at Nodes: it took too long") {
		t.Errorf("too late: %v", err)
	}
}

func TestConfigurationFromElsewhere(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func([]runtime.Object) []runtime.Object
		given  survey.Configuration
		from   string // value of ConfigFrom; empty: it wasn't read, and
		why    string // the reason
		pools  string
	}{
		{
			"a file and a flag that a person gave", func(all []runtime.Object) []runtime.Object { return all },
			survey.Configuration{File: []byte(usualFile + "tokenFile: /token\n"), FileName: "my.yaml", Flags: []string{"--cluster-cidr=10.200.0.0/16"}},
			"file my.yaml; flags of the Deployment kube-system/underlay-ccm, and --cluster-cidr=10.200.0.0/16", "", "10.200.0.0/16",
		},
		{
			"no Deployment, everything given", func([]runtime.Object) []runtime.Object { return nil },
			survey.Configuration{File: []byte(usualFile), FileName: "my.yaml", Flags: []string{"--cluster-cidr=10.200.0.0/16"}},
			"file my.yaml; no Deployment underlay-ccm is seen in kube-system, and --cluster-cidr=10.200.0.0/16", "", "10.200.0.0/16",
		},
		{
			"nothing anywhere", func([]runtime.Object) []runtime.Object { return nil },
			survey.Configuration{},
			"", "there is no Deployment underlay-ccm in kube-system, so its flags are not known: name the namespace that it is in with --namespace, or give those that it runs with, as in --manager-flag=--cluster-cidr=", "",
		},
		{
			"a file, and flags that nobody has seen", func([]runtime.Object) []runtime.Object { return nil },
			survey.Configuration{File: []byte(usualFile), FileName: "my.yaml"},
			"", "--manager-flag=--allocate-node-cidrs --manager-flag=--configure-cloud-routes", "",
		},
		{
			"a flag and no file", func([]runtime.Object) []runtime.Object { return nil },
			survey.Configuration{Flags: []string{"--cluster-cidr=10.200.0.0/16"}},
			"", "there is no ConfigMap kube-system/underlay-config: name the CCM's configuration file with --cloud-config", "",
		},
		{
			"a wrong file", func(all []runtime.Object) []runtime.Object { return all },
			survey.Configuration{File: []byte(usualFile + "netwrok: x\n"), FileName: "my.yaml"},
			"", "netwrok", "",
		},
		{
			"a mounted file without its key", func(all []runtime.Object) []runtime.Object {
				all[1].(*corev1.ConfigMap).Data = map[string]string{"other": ""}
				return all
			}, survey.Configuration{}, "", "the ConfigMap kube-system/settings has no key config.yaml", "",
		},
		{
			"a key that is mounted under another name", func(all []runtime.Object) []runtime.Object {
				volume := &all[0].(*appsv1.Deployment).Spec.Template.Spec.Volumes[0]
				volume.ConfigMap.Items = []corev1.KeyToPath{{Key: "ccm.yaml", Path: "config.yaml"}}
				data := all[1].(*corev1.ConfigMap).Data
				data["ccm.yaml"], data["config.yaml"] = data["config.yaml"], "not this"
				return all
			},
			survey.Configuration{},
			"ConfigMap kube-system/settings (ccm.yaml); flags of the Deployment kube-system/underlay-ccm", "", "10.244.0.0/20",
		},
		{
			"variables, of which one comes from a Secret", func(all []runtime.Object) []runtime.Object {
				container := &all[0].(*appsv1.Deployment).Spec.Template.Spec.Containers[1]
				container.Env = []corev1.EnvVar{
					{Name: "HCLOUD_LOAD_BALANCERS_TYPE", Value: "lb31"},
					{Name: "HCLOUD_NETWORK", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{}}},
				}
				return all
			},
			survey.Configuration{},
			"ConfigMap kube-system/settings (config.yaml); flags of the Deployment kube-system/underlay-ccm; not the values of HCLOUD_NETWORK, which come from elsewhere", "", "10.244.0.0/20",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := fake.NewClientset(c.change(installed())...)
			s, err := survey.Collect(t.Context(), survey.Sources{Client: client, Configuration: c.given},
				survey.Want{Parts: survey.PartConfig})
			if err != nil {
				t.Fatal(err)
			}
			if c.from == "" {
				if err := s.Require(survey.PartConfig); err == nil || !strings.Contains(err.Error(), c.why) {
					t.Errorf("%v, want %s", err, c.why)
				}
				return
			}
			if s.ConfigFrom != c.from || len(s.Gaps) > 0 {
				t.Errorf("from %q, want %q; %v", s.ConfigFrom, c.from, s.Gaps)
			}
			if pools := s.Pools(); len(pools) != 1 || pools[0].Prefix.String() != c.pools {
				t.Errorf("pools %v, want %s", pools, c.pools)
			}
		})
	}
}

// The CCM logs warnings about unknown variables at its start, wherever their values come from, and
// the survey has the same.
func TestCollectWarnsOfUnknownVariables(t *testing.T) {
	all := installed()
	container := &all[0].(*appsv1.Deployment).Spec.Template.Spec.Containers[1]
	container.Env = []corev1.EnvVar{
		{Name: "HCLOUD_LOAD_BALANCERS_TYPE", Value: "lb31"},
		{Name: "HCLOUD_LOAD_BALANCER_LOCATION", Value: "fsn1"},
		{Name: "ROBOT_PASSWROD", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{}}},
		{Name: "HCLOUD_NETWROK", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{}}},
	}
	s, err := survey.Collect(t.Context(), survey.Sources{Client: fake.NewClientset(all...)},
		survey.Want{Parts: survey.PartConfig})
	if err != nil {
		t.Fatal(err)
	}
	var fields []string
	for _, w := range s.ConfigWarnings {
		fields = append(fields, w.Field)
	}
	if want := []string{"HCLOUD_LOAD_BALANCER_LOCATION", "HCLOUD_NETWROK", "ROBOT_PASSWROD"}; !slices.Equal(fields, want) {
		t.Errorf("warned of %v, want %v", fields, want)
	}
}

// A list of many pages is whole.
func TestCollectReadsEveryPage(t *testing.T) {
	client := fake.NewClientset(installed()...)
	var asked []string
	client.PrependReactor("list", "nodes", func(a clienttesting.Action) (bool, runtime.Object, error) {
		options := a.(clienttesting.ListActionImpl).ListOptions
		asked = append(asked, options.Continue)
		page := len(asked)
		list := &corev1.NodeList{Items: []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("node-", page)}}}}
		if page < 3 {
			list.Continue = fmt.Sprint("page-", page)
		}
		return true, list, nil
	})
	s, err := survey.Collect(t.Context(), survey.Sources{Client: client}, survey.Want{
		Parts: survey.PartNodes,
	})
	if err != nil || len(s.Nodes) != 3 || s.Node("node-3") == nil {
		t.Fatalf("%v, %d Nodes", err, len(s.Nodes))
	}
	if want := []string{"", "page-1", "page-2"}; !slices.Equal(asked, want) {
		t.Errorf("asked for the pages %q, want %q", asked, want)
	}
}
