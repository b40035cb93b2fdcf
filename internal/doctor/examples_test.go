package doctor

import (
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// doctor has no findings for the installation of deploy/kubeadm.
func TestTheExamplesForKubeadmAreHealthy(t *testing.T) {
	for folder, s := range map[string]shape{
		"cloud": {}, "cloud-dual-stack": {dual: true}, "metal": {metal: true}, "metal-dual-stack": {dual: true, metal: true},
	} {
		t.Run(folder, func(t *testing.T) {
			content, err := os.ReadFile("../../deploy/kubeadm/" + folder + "/init.yaml")
			if err != nil {
				t.Fatal(err)
			}
			snap := healthy(t, s)
			seen := map[string]bool{}
			for text := range strings.SplitSeq(string(content), "\n---\n") {
				var document struct {
					Kind              string
					ControllerManager struct {
						ExtraArgs []struct{ Name, Value string }
					}
					Networking struct{ PodSubnet string }
				}
				if err := yaml.Unmarshal([]byte(text), &document); err != nil {
					t.Fatal(err)
				}
				switch seen[document.Kind] = true; document.Kind {
				case "KubeProxyConfiguration":
					snap.KubeProxy.Data["config.conf"] = text
				case "ClusterConfiguration":
					// kubeadm's arguments if there is a podSubnet.
					kcm(snap).Command = []string{"kube-controller-manager", "--allocate-node-cidrs=true", "--cluster-cidr=" + document.Networking.PodSubnet}
					for _, a := range document.ControllerManager.ExtraArgs {
						kcm(snap).Command = append(kcm(snap).Command, "--"+a.Name+"="+a.Value)
					}
				}
			}
			if !seen["KubeProxyConfiguration"] || !seen["ClusterConfiguration"] {
				t.Fatalf("the example has only %v", seen)
			}
			for _, f := range Examine(snap) {
				t.Errorf("%+v", f)
			}
		})
	}
}
