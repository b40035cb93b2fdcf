package cluster

import (
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/underlay-ccm/underlay/internal/connectivity"
)

const (
	Namespace = "underlay-connectivity"
	// Label is set on all created objects, with the role as its value.
	Label = "underlay.dev/connectivity"
	// unserved is a load balancer class without a controller: such a Service has a node port for
	// health checks, and costs nothing.
	unserved = "underlay.dev/connectivity"
	// longest is the maximum lifetime of a pod, also after a crash.
	longest = 10 * time.Minute
	// nobodyUID is the user and group of the pods.
	nobodyUID = 65532
)

// The roles, which are also the prefixes of names.
const (
	listens   = "listens"
	probeRole = "asks"
	temporary = "temporary" // a namespace to be deleted after the run
)

func labels(role string) map[string]string { return map[string]string{Label: role} }

func namespace() *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace, Labels: map[string]string{
		Label: temporary, "pod-security.kubernetes.io/enforce": "restricted",
	}}}
}

// services returns the Services for ClusterIPs and node ports, and for health checks.
func services() []*corev1.Service {
	one := func(name string, kind corev1.ServiceType, protocols ...corev1.Protocol) *corev1.Service {
		s := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: Namespace, Labels: labels(listens)},
			Spec: corev1.ServiceSpec{
				Type: kind, Selector: labels(listens),
				IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicyPreferDualStack),
			},
		}
		for _, p := range protocols {
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{
				Name: "probe-" +
					map[corev1.Protocol]string{corev1.ProtocolTCP: "tcp", corev1.ProtocolUDP: "udp"}[p],
				Port: connectivity.Port, TargetPort: intstr.FromInt32(connectivity.Port), Protocol: p,
			})
		}
		return s
	}
	local := one("local", corev1.ServiceTypeLoadBalancer, corev1.ProtocolTCP)
	local.Spec.LoadBalancerClass = ptr.To(unserved)
	local.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	return []*corev1.Service{
		one("all", corev1.ServiceTypeNodePort, corev1.ProtocolTCP, corev1.ProtocolUDP), local,
	}
}

func listener(image, node string) *corev1.Pod {
	return pod(image, node, listens, "serve", "--name="+node, fmt.Sprintf("--listen=:%d",
		connectivity.Port))
}

// MostNodes limits the nodes of a run, because all of them have to fit into one argument of the
// client pods, which Linux limits to 128 KiB (MAX_ARG_STRLEN: 32 pages of 4 KiB).
const MostNodes = 250

func worldArg(w connectivity.World) (string, error) {
	text, err := json.Marshal(w)
	return "--world=" + string(text), err
}

func prober(image, node, worldArg string, settle time.Duration) *corev1.Pod {
	return pod(image, node, probeRole, "ask", "--from="+node, "--settle="+settle.String(), worldArg)
}

// pod sets nodeName, because the scheduler would skip nodes that are cordoned or have no pod
// network, and these need a diagnosis most.
func pod(image, node, role string, args ...string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: role + "-", Namespace: Namespace, Labels: labels(role),
		},
		Spec: corev1.PodSpec{
			NodeName: node, RestartPolicy: corev1.RestartPolicyNever,
			ActiveDeadlineSeconds:         ptr.To(int64(longest.Seconds())),
			TerminationGracePeriodSeconds: ptr.To[int64](1),
			AutomountServiceAccountToken:  ptr.To(false),
			EnableServiceLinks:            ptr.To(false),
			Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](nobodyUID),
				RunAsGroup:     ptr.To[int64](nobodyUID),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: "probe", Image: image, ImagePullPolicy: corev1.PullIfNotPresent,
				Command: []string{"/underlay-agent", "probe"}, Args: args,
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true),
					Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
		},
	}
}
