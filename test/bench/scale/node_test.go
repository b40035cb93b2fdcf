package scale_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudproviderapi "k8s.io/cloud-provider/api"
)

const (
	// kubelet is the field manager of kubelets.
	kubelet = "kubelet"
	// imageCount is how many images a kubelet reports by default (--node-status-max-images).
	imageCount = 50
	// reportEvery is how often a kubelet reports an unchanged status (nodeStatusReportFrequency).
	reportEvery = 5 * time.Minute
	// writers create Nodes concurrently.
	writers = 24
)

func nodeName(number int) string { return fmt.Sprintf("node-%05d", number) }

// machine is a Node as a kubelet registers it, with the addresses of the machine with this number.
func machine(name string, number int) *corev1.Node {
	ip := netip.AddrFrom4([4]byte{
		172, 16 + byte(number>>16), byte(number >> 8), byte(number),
	}).String()
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name,
			Labels: map[string]string{
				corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
				"beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": "amd64",
				"topology.csi.example.com/location": "fsn1", "example.com/rack": fmt.Sprint("rack-", number/40),
				"example.com/pool": fmt.Sprint("pool-", number%7), "example.com/machine-type": "ex44",
				"feature.node.kubernetes.io/cpu-model.vendor_id": "AMD", "feature.node.kubernetes.io/cpu-model.family": "25",
				"feature.node.kubernetes.io/kernel-version.full": "6.8.0-71-generic", "feature.node.kubernetes.io/system-os_release.ID": "ubuntu",
			},
			Annotations: map[string]string{
				cloudproviderapi.AnnotationAlphaProvidedIPAddr:              ip,
				"volumes.kubernetes.io/controller-managed-attach-detach":    "true",
				"node.alpha.kubernetes.io/ttl":                              "300",
				"kubeadm.alpha.kubernetes.io/cri-socket":                    "unix:///var/run/containerd/containerd.sock",
				"csi.volume.kubernetes.io/nodeid":                           fmt.Sprintf(`{"csi.example.com":"%d","nfs.csi.k8s.io":%q}`, 4_000_000+number, name),
				"nfd.node.kubernetes.io/feature-labels":                     "cpu-model.family,cpu-model.vendor_id,kernel-version.full,system-os_release.ID",
				"example.com/last-applied-configuration-of-the-provisioner": fmt.Sprintf(`{"machine":%q,"image":"ubuntu-24.04","disks":["nvme0n1","nvme1n1"],"raid":1}`, name),
			},
		},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{
			{Key: cloudproviderapi.TaintExternalCloudProvider, Value: "true", Effect: corev1.TaintEffectNoSchedule},
		}},
		Status: corev1.NodeStatus{
			Capacity: amounts("16", "65536Mi"), Allocatable: amounts("15800m", "64000Mi"),
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: ip}, {Type: corev1.NodeHostName, Address: name},
			},
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: 10250}},
			NodeInfo: corev1.NodeSystemInfo{
				MachineID: fmt.Sprintf("%032x", number), SystemUUID: fmt.Sprintf("00000000-0000-0000-0000-%012x", number), BootID: fmt.Sprintf("11111111-0000-0000-0000-%012x", number),
				KernelVersion: "6.8.0-71-generic", OSImage: "Ubuntu 24.04.3 LTS", ContainerRuntimeVersion: "containerd://2.2.0",
				KubeletVersion: "v1.37.1", OperatingSystem: "linux", Architecture: "amd64",
			},
		},
	}
	for image := range imageCount {
		repository := fmt.Sprintf("registry.example.com/platform/team-%d/service-%d", image%9, image)
		n.Status.Images = append(n.Status.Images, corev1.ContainerImage{
			Names:     []string{fmt.Sprintf("%s@sha256:%064x", repository, image*1_000_003), fmt.Sprintf("%s:v1.%d.0", repository, image)},
			SizeBytes: int64(image+1) << 22,
		})
	}
	n.Status.Conditions = conditions(time.Now(), false)
	return n
}

func amounts(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory), corev1.ResourcePods: resource.MustParse("110"),
		corev1.ResourceEphemeralStorage: resource.MustParse("450Gi"), "hugepages-1Gi": resource.MustParse("0"), "hugepages-2Mi": resource.MustParse("0"),
	}
}

// conditions are those of a kubelet, which is ready soon after it has registered.
func conditions(now time.Time, ready bool) (all []corev1.NodeCondition) {
	at := metav1.NewTime(now)
	for _, c := range []corev1.NodeCondition{
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientMemory", Message: "kubelet has sufficient memory available"},
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasNoDiskPressure", Message: "kubelet has no disk pressure"},
		{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientPID", Message: "kubelet has sufficient PID available"},
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status"},
	} {
		if c.Type == corev1.NodeReady && !ready {
			c.Status, c.Reason, c.Message = corev1.ConditionFalse, "KubeletNotReady", "container runtime network not ready"
		}
		c.LastHeartbeatTime, c.LastTransitionTime = at, at
		all = append(all, c)
	}
	return all
}

// register creates a Node, and reports its status right after that, as kubelets do.
func (f *field) register(ctx context.Context, n *corev1.Node) (*corev1.Node, error) {
	created, err := f.admin.CoreV1().Nodes().Create(ctx, n, metav1.CreateOptions{
		FieldManager: kubelet,
	})
	if err != nil {
		return nil, err
	}
	return created, f.report(ctx, n.Name)
}

// report is the write of a kubelet every five minutes.
func (f *field) report(ctx context.Context, name string) error {
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": conditions(time.Now(), true)}})
	if err != nil {
		return err
	}
	_, err = f.admin.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{FieldManager: kubelet}, "status")
	return err
}

// populate creates a cluster in the state after its Nodes have joined: they are initialized, and
// have their podCIDRs from an allocator with no client limit.
func (f *field) populate(
	ctx context.Context, tb testing.TB, nodes int, record func(quantity, unit string, value float64),
) {
	tb.Helper()
	group, creating := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for number := range nodes {
		group.Go(func() error {
			n := machine(nodeName(number), number)
			n.Spec.Taints, n.Spec.ProviderID = nil, "underlay://"+n.Name
			_, err := f.register(creating, n)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		tb.Fatal(err)
	}
	f.numbers = nodes
	m, err := f.StartManager(ctx, f.manager("ipamQPS: 10000\n", "--controllers=node-ipam-controller"))
	if err != nil {
		tb.Fatal(err)
	}
	began := time.Now()
	f.watch.await(ctx, tb, nodes)
	record(backlogRate, "Nodes/s", float64(nodes)/time.Since(began).Seconds())
	m.Kill()
	// The next one leads at once.
	if err := f.admin.CoordinationV1().Leases(metav1.NamespaceSystem).Delete(ctx, leaseName,
		metav1.DeleteOptions{}); err != nil {
		tb.Fatal(err)
	}
	sample, err := f.admin.CoreV1().Nodes().Get(ctx, nodeName(0), metav1.GetOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	text, err := json.Marshal(sample)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Logf("%d Nodes of %d bytes each", nodes, len(text))
}
