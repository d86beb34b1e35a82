"""BibTeX of papers that plug-ins of several families come from."""

CEC = """@inproceedings{zhang2021cec,
  author = {Zhang, Chi and Song, Nan and Lin, Guosheng and Zheng, Yun and Pan, Pan and Xu, Yinghui},
  title = {Few-Shot Incremental Learning with Continually Evolved Classifiers},
  booktitle = {Conference on Computer Vision and Pattern Recognition (CVPR)},
  year = {2021}
}"""
FREE_LUNCH = """@inproceedings{yang2021freelunch,
  author = {Yang, Shuo and Liu, Lu and Xu, Min},
  title = {Free Lunch for Few-shot Learning: Distribution Calibration},
  booktitle = {International Conference on Learning Representations (ICLR)},
  year = {2021}
}"""
TOPIC = """@inproceedings{tao2020topic,
  author = {Tao, Xiaoyu and Hong, Xiaopeng and Chang, Xinyuan and Dong, Songlin and Wei, Xing and
            Gong, Yihong},
  title = {Few-Shot Class-Incremental Learning},
  booktitle = {Conference on Computer Vision and Pattern Recognition (CVPR)},
  year = {2020}
}"""
