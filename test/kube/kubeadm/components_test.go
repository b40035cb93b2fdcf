package kubeadm

import (
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	kubeadmapi "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm"
	"k8s.io/kubernetes/cmd/kubeadm/app/componentconfigs"
	kubeletapi "k8s.io/kubernetes/pkg/kubelet/apis/config"
	kubeletscheme "k8s.io/kubernetes/pkg/kubelet/apis/config/scheme"
	kubeletvalidation "k8s.io/kubernetes/pkg/kubelet/apis/config/validation"
	proxyapi "k8s.io/kubernetes/pkg/proxy/apis/config"
	proxyscheme "k8s.io/kubernetes/pkg/proxy/apis/config/scheme"
	proxyvalidation "k8s.io/kubernetes/pkg/proxy/apis/config/validation"
	proxyutil "k8s.io/kubernetes/pkg/proxy/util"
)

// component returns a component's configuration from kubeadm, with kubeadm's additions, parsed by
// the component's own code.
func component[T any](
	t *testing.T, cluster *kubeadmapi.InitConfiguration, group string, decoder runtime.Decoder,
) T {
	t.Helper()
	written, err := cluster.ComponentConfigs[group].Marshal()
	if err != nil {
		t.Fatal(err)
	}
	object, err := runtime.Decode(decoder, written)
	if err != nil {
		t.Fatal(err)
	}
	decoded, ok := object.(T)
	if !ok {
		t.Fatalf("%s is a %T", group, object)
	}
	return decoded
}

func proxyConfiguration(
	t *testing.T, cluster *kubeadmapi.InitConfiguration,
) *proxyapi.KubeProxyConfiguration {
	t.Helper()
	return component[*proxyapi.KubeProxyConfiguration](t, cluster, componentconfigs.KubeProxyGroup,
		proxyscheme.Codecs.UniversalDecoder())
}

func TestKubelet(t *testing.T) {
	_, codecs, err := kubeletscheme.NewSchemeAndCodecs()
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range examples(t) {
		cluster := initConfiguration(t, folder)
		kubelet := component[*kubeletapi.KubeletConfiguration](t, cluster, componentconfigs.KubeletGroup,
			codecs.UniversalDecoder())
		kubelet.FailCgroupV1 = false // otherwise this machine's cgroups are checked too
		if err := kubeletvalidation.ValidateKubeletConfiguration(kubelet,
			utilfeature.DefaultFeatureGate); err != nil {
			t.Errorf("%s: %v", folder, err)
		}
		// A node's IPv4 range is a /24: no pod gets its network address, broadcast address or
		// gateway.
		if free := 1<<8 - 3; int(kubelet.MaxPods) > free {
			t.Errorf("%s: maxPods %d, and a node's range has addresses for %d", folder, kubelet.MaxPods, free)
		}
	}
}

func TestKubeProxy(t *testing.T) {
	for _, folder := range examples(t) {
		proxy := proxyConfiguration(t, initConfiguration(t, folder))
		if errs := proxyvalidation.Validate(proxy); len(errs) > 0 {
			t.Errorf("%s: %v", folder, errs.ToAggregate())
		}
		if proxy.Mode != proxyapi.ProxyModeNFTables {
			t.Errorf("%s: kube-proxy's mode is %s", folder, proxy.Mode)
		}
		if proxy.DetectLocalMode != proxyapi.LocalModeInterfaceNamePrefix || proxy.DetectLocal.InterfaceNamePrefix != "veth" {
			t.Errorf("%s: kube-proxy tells pods by %s %q", folder, proxy.DetectLocalMode, proxy.DetectLocal.InterfaceNamePrefix)
		}
	}
}

// Load balancers reach nodes at their addresses in the network. Node ports at other addresses would
// be public.
func TestNodePorts(t *testing.T) {
	for _, folder := range examples(t) {
		cluster := initConfiguration(t, folder)
		at := proxyConfiguration(t, cluster).NodePortAddresses
		nodes := slices.Concat(nodeAddresses(t, cluster.NodeRegistration), nodeAddresses(t,
			joinConfiguration(t, folder).NodeRegistration))
		if slices.Equal(at, []string{proxyapi.NodePortAddressesPrimary}) {
			continue // the node's own addresses, whatever they are
		}
		for _, node := range nodes {
			public := strings.HasPrefix(filepath.Base(folder), "cloud") && node.Is6()
			if open := slices.ContainsFunc(at, func(text string) bool {
				return netip.MustParsePrefix(text).Contains(node)
			}); open == public {
				t.Errorf("%s: with nodePortAddresses %v, node %v has node ports: %t", folder, at, node, open)
			}
		}
		if left := openFamilies(cluster.Networking.ServiceSubnet, at); len(left) > 0 {
			t.Errorf("%s: nodePortAddresses %v open node ports on every %v address", folder, at, left)
		}
	}
}

// openFamilies are the families of Services whose node ports kube-proxy opens on every address,
// because no range of that family is configured.
func openFamilies(serviceSubnet string, nodePortAddresses []string) []corev1.IPFamily {
	var left []corev1.IPFamily
	for _, text := range strings.Split(serviceSubnet, ",") {
		family := corev1.IPv6Protocol
		if netip.MustParsePrefix(text).Addr().Is4() {
			family = corev1.IPv4Protocol
		}
		if proxyutil.NewNodePortAddresses(family, nodePortAddresses).MatchAll() {
			left = append(left, family)
		}
	}
	return left
}

func TestOpenFamilies(t *testing.T) {
	const both = "10.96.0.0/12,fd00:10:96::/112"
	if left := openFamilies(both, []string{"10.0.0.0/24"}); !slices.Equal(left, []corev1.IPFamily{corev1.IPv6Protocol}) {
		t.Errorf("with an IPv4 range alone, %v is open, want IPv6", left)
	}
}
