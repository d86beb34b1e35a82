"""BibTeX of the papers that methods and representations come from."""

ALICE = """@inproceedings{peng2022alice,
  author = {Peng, Can and Zhao, Kun and Wang, Tianren and Li, Meng and Lovell, Brian C.},
  title = {Few-Shot Class-Incremental Learning from an Open-Set Perspective},
  booktitle = {European Conference on Computer Vision (ECCV)},
  year = {2022}
}"""
CEC = """@inproceedings{zhang2021cec,
  author = {Zhang, Chi and Song, Nan and Lin, Guosheng and Zheng, Yun and Pan, Pan and Xu, Yinghui},
  title = {Few-Shot Incremental Learning with Continually Evolved Classifiers},
  booktitle = {Conference on Computer Vision and Pattern Recognition (CVPR)},
  year = {2021}
}"""
FACT = """@inproceedings{zhou2022fact,
  author = {Zhou, Da-Wei and Wang, Fu-Yun and Ye, Han-Jia and Ma, Liang and Pu, Shiliang and
            Zhan, De-Chuan},
  title = {Forward Compatible Few-Shot Class-Incremental Learning},
  booktitle = {Conference on Computer Vision and Pattern Recognition (CVPR)},
  year = {2022}
}"""
FECAM = """@inproceedings{goswami2023fecam,
  author = {Goswami, Dipam and Liu, Yuyang and Twardowski, Bart{\\l}omiej and
            van de Weijer, Joost},
  title = {{FeCAM}: Exploiting the Heterogeneity of Class Distributions in Exemplar-Free
           Continual Learning},
  booktitle = {Advances in Neural Information Processing Systems (NeurIPS)},
  year = {2023}
}"""
FREE_LUNCH = """@inproceedings{yang2021freelunch,
  author = {Yang, Shuo and Liu, Lu and Xu, Min},
  title = {Free Lunch for Few-shot Learning: Distribution Calibration},
  booktitle = {International Conference on Learning Representations (ICLR)},
  year = {2021}
}"""
ICARL = """@inproceedings{rebuffi2017icarl,
  author = {Rebuffi, Sylvestre-Alvise and Kolesnikov, Alexander and Sperl, Georg and
            Lampert, Christoph H.},
  title = {{iCaRL}: Incremental Classifier and Representation Learning},
  booktitle = {Conference on Computer Vision and Pattern Recognition (CVPR)},
  year = {2017}
}"""
LDC = """@misc{liu2022ldc,
  author = {Liu, Binghao and Yang, Boyu and Xie, Lingxi and Wang, Ren and Tian, Qi and
            Ye, Qixiang},
  title = {Learnable Distribution Calibration for Few-Shot Class-Incremental Learning},
  year = {2022},
  eprint = {2210.00232},
  archiveprefix = {arXiv}
}"""
LOGIT_ADJUSTMENT = """@inproceedings{menon2021logit,
  author = {Menon, Aditya Krishna and Jayasumana, Sadeep and Rawat, Ankit Singh and
            Jain, Himanshu and Veit, Andreas and Kumar, Sanjiv},
  title = {Long-tail Learning via Logit Adjustment},
  booktitle = {International Conference on Learning Representations (ICLR)},
  year = {2021}
}"""
NC_FSCIL = """@inproceedings{yang2023ncfscil,
  author = {Yang, Yibo and Yuan, Haobo and Li, Xiangtai and Lin, Zhouchen and Torr, Philip and
            Tao, Dacheng},
  title = {Neural Collapse Inspired Feature-Classifier Alignment for Few-Shot
           Class-Incremental Learning},
  booktitle = {International Conference on Learning Representations (ICLR)},
  year = {2023}
}"""
ROTATION = """@inproceedings{gidaris2018rotation,
  author = {Gidaris, Spyros and Singh, Praveer and Komodakis, Nikos},
  title = {Unsupervised Representation Learning by Predicting Image Rotations},
  booktitle = {International Conference on Learning Representations (ICLR)},
  year = {2018}
}"""
TEEN = """@inproceedings{wang2023teen,
  author = {Wang, Qi-Wei and Zhou, Da-Wei and Zhang, Yi-Kai and Zhan, De-Chuan and Ye, Han-Jia},
  title = {Few-Shot Class-Incremental Learning via Training-Free Prototype Calibration},
  booktitle = {Advances in Neural Information Processing Systems (NeurIPS)},
  year = {2023}
}"""
TOPIC = """@inproceedings{tao2020topic,
  author = {Tao, Xiaoyu and Hong, Xiaopeng and Chang, Xinyuan and Dong, Songlin and Wei, Xing and
            Gong, Yihong},
  title = {Few-Shot Class-Incremental Learning},
  booktitle = {Conference on Computer Vision and Pattern Recognition (CVPR)},
  year = {2020}
}"""
