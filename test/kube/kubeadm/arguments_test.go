package kubeadm

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	cloudprovider "k8s.io/cloud-provider/api"
	nodeutil "k8s.io/component-helpers/node/util"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	kubeadmapi "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm"
	"k8s.io/kubernetes/cmd/kubeadm/app/constants"
	"k8s.io/kubernetes/cmd/kubeadm/app/phases/controlplane"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app/options"
)

// kubeadm enables the allocation if there is a podSubnet, so the test checks the command line that
// it writes, as parsed by kube-controller-manager.
func TestControllerManagerAllocatesNothing(t *testing.T) {
	for _, folder := range examples(t) {
		cluster := initConfiguration(t, folder)
		pods := controlplane.GetStaticPodSpecs(&cluster.ClusterConfiguration, &cluster.LocalAPIEndpoint,
			nil)
		command := pods[constants.KubeControllerManager].Spec.Containers[0].Command
		program := controllermanager.NewControllerManagerCommand()
		if err := program.ParseFlags(command[1:]); err != nil {
			t.Errorf("%s: kube-controller-manager refuses %q: %v", folder, command, err)
			continue
		}
		for name, want := range map[string]string{
			"allocate-node-cidrs":      "false",
			"configure-cloud-routes":   "false",
			"cluster-cidr":             cluster.Networking.PodSubnet,
			"service-cluster-ip-range": cluster.Networking.ServiceSubnet,
		} {
			if got := program.Flags().Lookup(name).Value.String(); got != want {
				t.Errorf("%s: kube-controller-manager runs with --%s=%s, want %s", folder, name, got, want)
			}
			if times := strings.Count(strings.Join(command, "\n"), "--"+name+"="); times != 1 {
				t.Errorf("%s: --%s is given %d times: %q", folder, name, times, command)
			}
		}
	}
}

// kubeletFlags are the arguments of a kubelet, parsed by its own code.
func kubeletFlags(t *testing.T, arguments []kubeadmapi.Arg) *kubelet.KubeletFlags {
	t.Helper()
	flags := kubelet.NewKubeletFlags()
	set := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	flags.AddFlags(set)
	for _, a := range arguments {
		if err := set.Parse([]string{"--" + a.Name + "=" + a.Value}); err != nil {
			t.Errorf("kubelet refuses %v: %v", a, err)
		}
	}
	return flags
}

// nodeAddresses are those that a kubelet reports from its start, and passes to the cloud controller
// manager.
func nodeAddresses(t *testing.T, registration kubeadmapi.NodeRegistrationOptions) []netip.Addr {
	t.Helper()
	flags := kubeletFlags(t, registration.KubeletExtraArgs)
	if flags.CloudProvider != "external" {
		t.Errorf("kubelet runs with --cloud-provider=%q: no node of it waits for %s", flags.CloudProvider, cloudprovider.TaintExternalCloudProvider)
	}
	ips, invalid, err := nodeutil.ParseNodeIPArgument(flags.NodeIP, flags.CloudProvider)
	if err != nil || len(invalid) > 0 || len(ips) == 0 {
		t.Fatalf("--node-ip=%q: %v %v", flags.NodeIP, invalid, err)
	}
	var addresses []netip.Addr
	for _, ip := range ips {
		address, _ := netip.AddrFromSlice(ip)
		addresses = append(addresses, address.Unmap())
	}
	return addresses
}

// Every node waits for underlay-ccm, and reports its machine.
func TestKubeletArguments(t *testing.T) {
	for _, folder := range examples(t) {
		first, further := initConfiguration(t, folder), joinConfiguration(t, folder)
		theirs := nodeAddresses(t, further.NodeRegistration)
		ours := nodeAddresses(t, first.NodeRegistration)
		if ours[0].String() != first.LocalAPIEndpoint.AdvertiseAddress {
			t.Errorf("%s: the node is %v, its API server %s", folder, ours, first.LocalAPIEndpoint.AdvertiseAddress)
		}
		if len(ours) != len(theirs) || ours[0] == theirs[0] {
			t.Errorf("%s: the first node has %v, a further one %v", folder, ours, theirs)
		}
		if at := further.Discovery.BootstrapToken.APIServerEndpoint; at != first.ControlPlaneEndpoint {
			t.Errorf("%s: the cluster is at %s, and a node joins at %s", folder, first.ControlPlaneEndpoint, at)
		}
	}
}
